"""Subjects that fit with landmarks: in memory beside scikit-learn, and from Parquet to Parquet by the command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.child import peak_of, stopwatch
from tests.benchmarks.manifold import GAMMA, N_FEATURES, manifold

__all__ = ["STAGES", "last_progress", "nystroem", "run_command", "sklearn_nystroem", "write_files", "wrong_ids"]

FILE_ROWS = 500_000
STAGES = ("look", "accumulate", "score")  # of a run with uniform landmarks: each reads every row once
PROGRESS = re.compile(r"^(\w+): (\d+) of (\d+)$", re.MULTILINE)
N_WARM, M_WARM, K_WARM = 400, 20, 2  # of a fit before the one that is timed: imports and threads are there then

CONFIG = """
source: {{uri: {files}/*.parquet, id: [id]}}
kernel: {{name: rbf, gamma: {gamma}}}
method: nystroem
n_components: {k}
nystroem: {{n_landmarks: {m}}}
dtype: float32
budget: {{memory: {memory}}}
output: {{path: out}}
"""


def nystroem(n: int, k: int, m: int, like_sklearn: bool) -> dict[str, Any]:
    """Fit and scores of the package, with landmarks of its own, or with those that scikit-learn draws."""
    from sklearn.utils import check_random_state

    from scalable_kpca import KernelPCA

    X = manifold(n)
    # as `Nystroem.fit` draws them
    landmarks = X[check_random_state(0).permutation(n)[:m]] if like_sklearn else "uniform"
    options: dict[str, Any] = {"kernel": "rbf", "gamma": GAMMA, "method": "nystroem", "dtype": "float32"}
    KernelPCA(K_WARM, n_landmarks=M_WARM, **options).fit_transform(X[:N_WARM])
    estimator = KernelPCA(k, n_landmarks=m, landmarks=landmarks, random_state=0, **options)
    with stopwatch() as watch:
        scores = estimator.fit_transform(X)
    certificate = estimator.certificate_
    return {
        "seconds": watch.seconds,
        "eigenvalues": estimator.eigenvalues_.tolist(),
        # the scores are those of the rows that were fitted
        "squares": np.einsum("ij,ij->j", scores, scores).tolist(),
        "relative_residual": certificate.relative_residual,
        "planned_memory": estimator.plan_.peak_memory,
    }


def sklearn_nystroem(n: int, k: int, m: int, dtype: str) -> dict[str, Any]:
    """Fit and scores of scikit-learn's Nystroem and PCA on the same rows."""
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem

    X = manifold(n).astype(dtype)
    options: dict[str, Any] = {"kernel": "rbf", "gamma": GAMMA, "random_state": 0}
    PCA(K_WARM).fit_transform(Nystroem(n_components=M_WARM, **options).fit_transform(X[:N_WARM]))
    features, components = Nystroem(n_components=m, **options), PCA(k, random_state=0)
    with stopwatch() as watch:
        components.fit_transform(features.fit_transform(X))
    return {
        "seconds": watch.seconds,
        "eigenvalues": (components.explained_variance_.astype(float) * (n - 1)).tolist(),
    }


def write_files(n: int, directory: str) -> dict[str, Any]:
    """Rows with ids as Parquet files, one after another, each as pyarrow writes it by default."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(directory).mkdir()
    with stopwatch() as watch:
        for first in range(0, n, FILE_ROWS):
            rows = manifold(min(FILE_ROWS, n - first), first=first)
            columns = {"id": np.arange(first, first + len(rows))}
            columns |= {f"x{number:02}": rows[:, number] for number in range(N_FEATURES)}
            pq.write_table(pa.table(columns), Path(directory, f"part-{first // FILE_ROWS:05}.parquet"))
    return {"seconds": watch.seconds}


def run_command(n: int, k: int, m: int, files: str, memory: str) -> dict[str, Any]:
    """`skpca run` on files: seconds and peak of its process, what it said of its progress, and the ids it wrote."""
    with tempfile.TemporaryDirectory(dir=Path(files).parent) as folder:
        config = CONFIG.format(files=files, gamma=GAMMA, k=k, m=m, memory=memory)
        Path(folder, "job.yaml").write_text(config, encoding="utf-8")
        said, told = Path(folder, "stdout"), Path(folder, "stderr")
        command = [sys.executable, "-m", "scalable_kpca.cli", "run", "job.yaml", "--json"]
        with said.open("wb") as output, told.open("wb") as errors, stopwatch() as watch:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=errors)
            peak = peak_of(process, told)
        answer = json.loads(said.read_text(encoding="utf-8").splitlines()[-1])
        return {
            "seconds": watch.seconds,
            "peak_memory": peak,
            "wrong_ids": wrong_ids(Path(folder, answer["embedding"]), n),
            "progress": last_progress(told.read_text(encoding="utf-8")),
            "explained_variance": answer["explained_variance"],
        }


def last_progress(text: str) -> dict[str, list[int]]:
    """Rows done and rows in all, of the last line of each stage; a stage that went backwards or too far has done -1."""
    last: dict[str, list[int]] = {}
    for stage, *numbers in PROGRESS.findall(text):
        done, total = map(int, numbers)
        before = last.get(stage, [0, total])
        last[stage] = [done if before[0] <= done <= total == before[1] else -1, total]
    return last


def wrong_ids(embedding: Path, n: int) -> int:
    """How many of n ids are missing, more than once or not in their place, and how many rows have a score of NaN."""
    import pyarrow.parquet as pq

    wrong, first = 0, 0
    for path in sorted(embedding.glob("part-*.parquet")):
        table = pq.read_table(path)
        ids = table["id"].to_numpy()
        scores = np.column_stack([table[name].to_numpy() for name in table.column_names if name != "id"])
        wrong += int(((ids != np.arange(first, first + len(ids))) | ~np.isfinite(scores).all(axis=1)).sum())
        first += len(ids)
    return wrong + abs(n - first)
