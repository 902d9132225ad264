"""Scores of another source with the model in force."""

from __future__ import annotations

from pathlib import Path

from scalable_kpca.errors import StorageError, storage_errors
from scalable_kpca.model import load_model
from scalable_kpca.source import FiniteCheck, open_source
from scalable_kpca.transform import projector
from scalable_kpca.workflow.files import read_json, remove_tree
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.parts import PartWriter, with_scores

__all__ = ["transform_source"]


def transform_source(output: Output, uri: str, base: Path, destination: Path) -> int:
    """Scores of another source's rows with the model in force, as Parquet parts in a new directory.

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

    Returns
    -------
    int
        Number of rows.
    """
    run = output.require_latest()
    model = load_model(run.path / "model")
    wanted = read_json(run.path / "run.json")["config"]["source"]
    is_table = bool(wanted["id"] or wanted["passthrough"] or wanted["features"]) or not uri.endswith((".npy", ".zarr"))
    source = open_source(
        uri,
        base,
        id_columns=wanted["id"],
        features=[_literal(name) for name in model.feature_names] if is_table else None,
        passthrough=wanted["passthrough"],
    )
    if destination.exists():
        raise StorageError(f"{destination} exists; name a new directory for the scores.")
    scores = projector(model)
    staging = destination.with_name(f".{destination.name}.new")
    with storage_errors(f"writing {destination}"):
        remove_tree(staging)
        staging.mkdir(parents=True)
        finite = FiniteCheck(source.feature_names)
        with PartWriter(staging, [part.n_rows for part in source.parts]) as parts:
            for batch in source.batches():
                finite.add(batch.rows)
                if finite.first is None:
                    parts.add(batch.part, with_scores(batch.labels, scores(batch.rows)))
        finite.raise_if_any()
        staging.rename(destination)
    return source.n_samples


def _literal(name: str) -> str:
    """Glob that matches one column name only."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
