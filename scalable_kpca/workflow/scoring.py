"""Scores of another source with the model in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.disk import new_directory, scratch_directory
from scalable_kpca.errors import ConfigError, StorageError, storage_errors
from scalable_kpca.model import AnyModel, load_model
from scalable_kpca.novelty import warn_of_rounding
from scalable_kpca.source import Copies, FiniteCheck, PreparedSource, Published, Source, check_width, open_source
from scalable_kpca.source.location import ARRAYS, COPIED, find_files, source_kind
from scalable_kpca.source.parts import naming_files
from scalable_kpca.workflow.checks import check_separate
from scalable_kpca.workflow.columns import score_columns
from scalable_kpca.workflow.csv_config import CsvConfig
from scalable_kpca.workflow.files import read_json, write_json
from scalable_kpca.workflow.health import PROFILE, Health, read_profile
from scalable_kpca.workflow.images import pre_images
from scalable_kpca.workflow.layout import EMBEDDING, Output
from scalable_kpca.workflow.loading import check_place, override_config
from scalable_kpca.workflow.parts import NOVELTY, part_name, with_scores
from scalable_kpca.workflow.score_files import writing_scores
from scalable_kpca.workflow.watching import Comparison, Tally

__all__ = ["open_like", "transform_source"]

Matrix = NDArray[np.float64]


def transform_source(
    output: Output,
    uri: str,
    base: Path,
    destination: Path,
    overrides: Sequence[str] = (),
    *,
    reconstruct: bool = False,
) -> tuple[int, dict[str, Any]]:
    """Scores of another source's rows with the model in force, in a new directory that is laid out as the job asks for.

    Parquet parts, or where the job has ``output.format: zarr``, ``embedding.zarr`` beside ``embedding/part-*.parquet``.

    Parameters
    ----------
    output : Output
        Whose latest run holds the model.
    uri : str
        Source with the columns that the model was fitted on.
    base : Path
        What a relative `uri` is relative to.
    destination : Path
        Directory that does not exist; it appears whole.
    overrides : sequence of str
        Changes to the sections ``drift`` and ``monitor`` of the configuration of the run, such as ``drift.psi.fail=1``.
    reconstruct : bool
        Whether the columns of the model are written in the place of the scores: what the scores of each row are mapped
        back to, float64 numbers in the units of the source, and the most likely category. See `original_columns`.

    Returns
    -------
    n_rows : int
    health : dict
        How each part compares with the rows of the fit; also in ``_health.json`` beside the scores.

    Raises
    ------
    InvalidInputError
        For rows that cannot be scored, or are too far from those of the fit.
    ConfigError
        When the destination lies in the output or in the source; to reconstruct, for a model without a map; when a
        performance report is asked for.
    StorageError
        When the model is not what was committed, which it is read once for before any row is scored, or when something
        has the name of the destination, also by the time that the scores are there.
    """
    check_place("--source", uri)
    run = output.require_latest()
    problems = run.problems(("model", "run.json", PROFILE))
    if problems:
        raise StorageError(f"{problems[0]}; `skpca run` with the configuration of this output repairs it.")
    model = load_model(run.path / "model")
    config = override_config(read_json(run.path / "run.json")["config"], overrides, ("drift", "monitor"))
    if config.monitor.performance_report is not None:
        raise ConfigError(
            "monitor.performance_report is of tasks on a Dask scheduler, and transform has none: rows are scored in "
            "this process; leave it out."
        )
    if NOVELTY in config.beside:
        warn_of_rounding(model)
    if destination.exists():
        raise StorageError(f"{destination} exists; name a new directory for the scores.")
    check_separate("--to", destination.resolve(), (part_name(0), *EMBEDDING), uri, base)
    if destination.resolve().is_relative_to(output.path.resolve() / "runs"):
        raise ConfigError(f"--to={destination} lies among the runs of {output.path}; choose a directory of its own.")
    # rows are read like those of the source, which has no zarr of named columns
    form = "parquet" if reconstruct else config.output.format
    with storage_errors(f"writing {destination}"), _tables_for(destination, uri, base) as tables:
        source = open_like(run.path, model, uri, base, tables=tables)
        back = pre_images(model, source) if reconstruct else None
        profile = read_profile(run.path, config)
        health = Health(profile, config.drift, source, dict(enumerate(source.paths)))
        health.judge_columns()
        with new_directory(destination) as staging:
            compared = health.comparison(model)
            health.judge_scores(_write_scores(model, source, staging, compared, config.beside, form, back))
            if health.to_json():
                write_json(staging / "_health.json", health.to_json())
    return source.n_samples, health.to_json()


def open_like(
    run: Path,
    model: AnyModel,
    uri: str,
    base: Path,
    *,
    tables: Path | None = None,
    make: bool = True,
    published: Published | None = None,
) -> Source:
    """Another source, with the same columns in use and prepared alike, as the one that the model of a run is of.

    Copies of CSV and Arrow files are kept in `tables`, by default those of the output, and made unless that is told.
    What travels has the types of the scores that are `published`.
    """
    description = run / "run.json"
    try:
        wanted = read_json(description)["config"]["source"]
        ids, patterns, passthrough, partition = (
            wanted[name] for name in ("id", "features", "passthrough", "partition")
        )
        csv = CsvConfig.model_validate(wanted.get("csv", {})).options
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{description} is missing or damaged; `skpca run` with the configuration of this output repairs it."
        ) from error
    preparation = model.preparation
    categorical = () if preparation is None else preparation.categorical
    is_table = bool(ids or patterns or passthrough or partition or categorical)
    is_table = is_table or source_kind(find_files(uri, base)) not in ARRAYS
    names = model.feature_names if preparation is None else preparation.numeric
    raw = open_source(
        uri,
        base,
        id_columns=ids,
        features=[_literal(name) for name in names] if is_table else None,
        passthrough=passthrough,
        categorical=[_literal(name) for name in categorical],
        partition=partition,
        copies=Copies(Output.of(run).tables if tables is None else tables, csv, make),
        published=published,
    )
    return raw if preparation is None else PreparedSource(raw, preparation)


@contextmanager
def _tables_for(destination: Path, uri: str, base: Path) -> Iterator[Path | None]:
    """A place for copies of files that are read from copies, which is gone at the end."""
    if source_kind(find_files(uri, base)) not in COPIED:
        yield None
        return
    with scratch_directory(destination) as scratch:
        yield scratch / "tables"


def _write_scores(
    model: AnyModel,
    source: Source,
    directory: Path,
    comparison: Comparison | None,
    beside: Sequence[str],
    form: str,
    back: Callable[[Any, Matrix], Any] | None,
) -> dict[int, Tally]:
    check_width(len(source.feature_names), model.n_features)
    scores_of, finite = score_columns(model, beside), FiniteCheck(source.feature_names)
    tallies: dict[int, Tally] = {}
    rows = [part.n_rows for part in source.parts]
    with writing_scores(directory, rows, form=form, n_components=model.n_components, beside=beside, parts="") as parts:
        for batch in source.batches():
            finite.add(batch.rows)
            if finite.first is not None:
                continue
            scores, columns = scores_of(batch.rows)
            table = with_scores(batch.labels, scores, columns)
            parts.add(batch.part, table if back is None else back(batch.labels, scores))
            if comparison is not None:
                tallies.setdefault(batch.part, comparison.tally()).add(comparison.counts(batch.rows, scores), table)
        with naming_files(source.parts):
            finite.raise_if_any()
    return tallies


def _literal(name: str) -> str:
    """Pattern that matches one column name only, and is no type."""
    escaped = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
    return f"[d]{escaped[1:]}" if escaped.startswith("d") else escaped
