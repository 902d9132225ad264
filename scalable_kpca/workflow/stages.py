"""The stages of a run: prepare, copy rows, build and solve, write results, publish; a killed one is run again."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from scalable_kpca.engine import Engine, Listener, open_engine
from scalable_kpca.errors import ConfigError, InvalidInputError, StorageError, storage_errors
from scalable_kpca.exact import ALGORITHM_VERSION, ExactFit, fit_exact, gram_fingerprint, open_gram, plan
from scalable_kpca.kernels import resolve_kernel
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.model import Model, save_model
from scalable_kpca.report import metrics
from scalable_kpca.source import Rows, RowSummary, Source, open_rows, open_source, write_rows
from scalable_kpca.tiling import Plan
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import read_json, remove_tree, write_json
from scalable_kpca.workflow.layout import Output, RunDirectory
from scalable_kpca.workflow.lock import output_lock
from scalable_kpca.workflow.parts import PartWriter, part_name, with_scores

__all__ = ["Outcome", "Prepared", "execute", "prepare"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A job that has been checked and planned, before anything is written.

    Attributes
    ----------
    config : Config
    source : Source
    plan : Plan
    output : Output
    source_digest : str
        Identity of the source's contents.
    fingerprint : str
        Identity of the run: same contents, kernel, plan and solver settings, same name.
    """

    config: Config
    source: Source
    plan: Plan
    output: Output
    source_digest: str
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """What `execute` did.

    Attributes
    ----------
    run : RunDirectory
        In force now.
    fit : ExactFit or None
        None when nothing had to be done.
    seconds : float
        Wall time.
    """

    run: RunDirectory
    fit: ExactFit | None
    seconds: float


def prepare(config: Config, base: Path) -> Prepared:
    """Open the source, plan the fit and name the run; reads the source's bytes once for their digest.

    Parameters
    ----------
    config : Config
        From `load_config`.
    base : Path
        What relative paths are relative to: the directory of the configuration file.

    Raises
    ------
    ConfigError, InvalidInputError, MemoryLimitError
        Whatever can be known to be wrong now.
    """
    wanted = config.source
    source = open_source(
        wanted.uri, base, id_columns=wanted.id, features=wanted.features, passthrough=wanted.passthrough
    )
    output = Output((base / config.output.path).resolve())
    _check_separate(output.path, source)
    if source.n_samples == 0:
        raise InvalidInputError(f"source.uri={wanted.uri!r} has no rows; at least one is needed.")
    k = config.n_components
    if isinstance(k, int) and k > source.n_samples:
        raise ConfigError(f"n_components={k}, but the source has {source.n_samples} rows; ask for at most that many.")
    chosen = plan(
        source.n_samples,
        len(source.feature_names),
        n_components=k,
        dtype=config.dtype,
        solver=config.solver.name,
        gram=config.gram,
        memory_limit=config.budget.memory,
        n_jobs=1 if config.cluster.kind == "synchronous" else config.cluster.n_threads,
        tile_rows=config.tile_rows,
    )
    _check_disk(config, chosen, source, output.path)
    digest = source.fingerprint()
    return Prepared(config, source, chosen, output, digest, _fingerprint(config, digest, chosen))


def execute(prepared: Prepared, listener: Listener | None = None) -> Outcome:
    """Do what is not done yet, and publish it.

    Parameters
    ----------
    prepared : Prepared
        From `prepare`.
    listener : callable, optional
        Receives progress events.

    Returns
    -------
    Outcome

    Raises
    ------
    LockedError
        When another process writes to the same output.
    KernelPCAError
        Whatever goes wrong; what is finished stays, and the same call goes on from there.

    Notes
    -----
    Order of writes: rows, tiles, results, a flush to the disk, the commit list, the pointer. A reader that follows the
    pointer sees a whole run at every moment.
    """
    started = time.perf_counter()
    output, run = prepared.output, prepared.output.run(prepared.fingerprint)
    if _is_in_force(output, run):
        return Outcome(run, None, time.perf_counter() - started)
    with storage_errors(f"creating {output.path}"):
        run.path.mkdir(parents=True, exist_ok=True)
    with output_lock(output.lock):
        if run.is_committed:
            output.point_to(run)
            return Outcome(run, None, time.perf_counter() - started)
        with storage_errors(f"writing to {run.path}"):
            write_json(run.path / "plan.json", prepared.plan.to_json())
            cluster = prepared.config.cluster
            with open_engine(
                cluster.kind,
                n_threads=prepared.plan.n_threads,
                address=cluster.address,
                n_workers=cluster.n_workers,
                listener=listener,
            ) as engine:
                fit = _fit(prepared, run, engine)
            seconds = time.perf_counter() - started
            _write_results(prepared, run, fit, seconds)
            run.commit()
            output.point_to(run)
    return Outcome(run, fit, seconds)


def _fit(prepared: Prepared, run: RunDirectory, engine: Engine) -> ExactFit:
    config, chosen = prepared.config, prepared.plan
    rows, summary = _copy_rows(prepared, run, engine)
    kernel = resolve_kernel(
        config.kernel.name,
        gamma=config.kernel.gamma,
        degree=config.kernel.degree,
        coef0=config.kernel.coef0,
        n_features=rows.n_features,
        variance=summary.variance,
    )
    fingerprint = gram_fingerprint(_rows_key(prepared), kernel, chosen)
    if chosen.gram == "zarr":
        _adopt(prepared.output, run, "gram.zarr", lambda path: _has_fingerprint(path, fingerprint))
    gram = open_gram(rows, kernel, chosen, engine, path=run.path / "gram.zarr", fingerprint=fingerprint)
    return fit_exact(
        rows,
        kernel,
        chosen,
        gram,
        n_components=config.n_components,
        tol=config.solver.tol,
        seed=config.seed,
        max_passes=config.solver.max_passes,
        indefinite=config.indefinite,
        feature_names=prepared.source.feature_names,
    )


def _copy_rows(prepared: Prepared, run: RunDirectory, engine: Engine) -> tuple[Rows, RowSummary]:
    source, key = prepared.source, _rows_key(prepared)
    path = run.path / "rows.zarr"
    finished = open_rows(path, key)
    if finished is None and _adopt(prepared.output, run, "rows.zarr", lambda other: open_rows(other, key) is not None):
        _adopt(prepared.output, run, "labels", lambda other: other.is_dir())
        finished = open_rows(path, key)
    if finished is not None and (run.path / "labels").is_dir():
        return finished
    remove_tree(run.path / "labels")
    (run.path / "labels").mkdir()
    done = 0

    def advance(n_rows: int) -> None:
        nonlocal done
        done += n_rows
        engine.notify("rows", done, source.n_samples)

    return write_rows(
        _rows_beside_labels(source, run.path / "labels"),
        path,
        n_samples=source.n_samples,
        n_features=len(source.feature_names),
        dtype=source.dtype,
        tile_rows=prepared.plan.tile_rows,
        fingerprint=key,
        names=source.feature_names,
        advance=advance,
    )


def _rows_beside_labels(source: Source, directory: Path) -> Iterator[NDArray[np.floating[Any]]]:
    """Feature rows of a source, while their labels are written from the same read."""
    with PartWriter(directory, [part.n_rows for part in source.parts]) as parts:
        for batch in source.batches():
            parts.add(batch.part, batch.labels)
            yield batch.rows


def _adopt(output: Output, run: RunDirectory, name: str, fits: Callable[[Path], bool]) -> bool:
    """Take over work in progress of another run when it is what this one needs; renaming costs nothing."""
    if (run.path / name).exists():
        return False
    for other in output.runs():
        if other.path != run.path and (other.path / name).exists() and fits(other.path / name):
            (other.path / name).rename(run.path / name)
            return True
    return False


def _has_fingerprint(path: Path, fingerprint: str) -> bool:
    try:
        attributes = read_json(path / "zarr.json")["attributes"]
    except (StorageError, KeyError, TypeError):
        return False
    return bool(attributes.get("fingerprint") == fingerprint)


def _write_results(prepared: Prepared, run: RunDirectory, fit: ExactFit, seconds: float) -> None:
    for name in ("model", "embedding"):
        remove_tree(run.path / name)
    save_model(fit.model, run.path / "model")
    _write_embedding(prepared, run, fit.model)
    write_json(run.path / "metrics.json", metrics(fit.model))
    counts = fit.build_counts
    write_json(
        run.path / "run.json",
        {
            "fingerprint": prepared.fingerprint,
            "config": prepared.config.model_dump(mode="json"),
            "plan": prepared.plan.to_json(),
            "tiles": {"computed": counts.computed, "read": counts.read, "repaired": counts.repaired},
            "n_passes": fit.model.n_passes,
            "seconds": round(seconds, 3),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": platform.node(),
            "versions": {
                name: version(name) for name in ("scalable-kpca", "dask", "numpy", "scipy", "zarr", "pyarrow")
            },
        },
    )


def _write_embedding(prepared: Prepared, run: RunDirectory, model: Model) -> None:
    """One part for each input part: its labels and the scores of the same rows."""
    import pyarrow.parquet as pq

    directory = run.path / "embedding"
    directory.mkdir()
    scores, start = model.training_scores, 0
    for index, part in enumerate(prepared.source.parts):
        labels = pq.read_table(run.path / "labels" / part_name(index))
        stop = start + part.n_rows
        pq.write_table(with_scores(labels, scores[start:stop]), directory / part_name(index))
        start = stop


def _rows_key(prepared: Prepared) -> str:
    text = f"{prepared.source_digest} {prepared.plan.tile_rows} {prepared.source.dtype}"
    return hashlib.sha256(text.encode()).hexdigest()


def _fingerprint(config: Config, source_digest: str, chosen: Plan) -> str:
    identity = {
        "source": source_digest,
        "kernel": config.kernel.model_dump(mode="json"),
        "method": "exact",
        "solver": [chosen.solver, config.solver.tol, config.solver.max_passes],
        "n_components": config.n_components,
        "dtype": chosen.dtype,
        "tile_rows": chosen.tile_rows,
        "tiles_per_task": chosen.tiles_per_task,
        "indefinite": config.indefinite,
        "seed": config.seed,
        "algorithm": ALGORITHM_VERSION,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _is_in_force(output: Output, run: RunDirectory) -> bool:
    try:
        latest = output.latest()
    except StorageError:
        return False
    return latest is not None and latest.path == run.path


def _check_separate(output: Path, source: Source) -> None:
    """Refuse an output that lies in the input, or the other way round: a run must never read what it wrote."""
    for part in source.parts:
        file = Path(part.path).resolve()
        if output == file or output in file.parents or (file.is_dir() and file in output.parents):
            raise ConfigError(f"output.path={output} and the source {file} lie in one another; choose another output.")
    folders = {Path(part.path).resolve().parent for part in source.parts}
    if output in folders:
        raise ConfigError(f"output.path={output} is the directory of the source; choose another output.")


def _check_disk(config: Config, chosen: Plan, source: Source, output: Path) -> None:
    itemsize = 4 if source.dtype == "float32" else 8
    rows = chosen.n_samples * chosen.n_features * itemsize
    needed = 2 * rows + (chosen.gram_bytes if chosen.gram == "zarr" else 0)
    if config.budget.disk is not None and needed > resolve_memory_limit(config.budget.disk):
        raise ConfigError(
            f"budget.disk={config.budget.disk} cannot hold {format_bytes(needed)} of rows and tiles; raise it "
            f"to {needed}."
        )
    free = _free_bytes(output)
    if needed > free:
        raise StorageError(
            f"{output} has {format_bytes(free)} free, rows and tiles need {format_bytes(needed)}; make room or "
            "choose another "
            "output.path."
        )


def _free_bytes(path: Path) -> int:
    """Free bytes of the file system that `path` is or will be on."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
