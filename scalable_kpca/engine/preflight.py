"""What can be known to be wrong with a cluster before it works: other libraries, files that workers do not see."""

from __future__ import annotations

import contextlib
import logging
import platform
import uuid
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from scalable_kpca.engine.asking import ask_workers
from scalable_kpca.engine.blas import blas_architecture
from scalable_kpca.errors import ClusterError, storage_errors
from scalable_kpca.machine import installed_version
from scalable_kpca.records import digest_json

__all__ = ["check_workers", "libraries_digest", "sharing_problems", "version_problems", "versions"]

logger = logging.getLogger(__name__)

# what decides about results and formats; of Python the feature version, since tasks travel as its bytecode
LIBRARIES = ("scalable-kpca", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "pyarrow")


def check_workers(client: Any, shared: Path | None, seconds: float) -> None:
    """Refuse workers with other libraries, which would give other bits or none, and such as do not see a directory.

    Raises
    ------
    ClusterError
        Naming the worker and what is wrong with it, or that it does not answer within so many seconds.
    StorageError
        When this process itself cannot write to the directory.
    """
    problems = version_problems(client, seconds)
    if not problems and shared is not None:
        problems = sharing_problems(client, shared, seconds)
    if problems:
        raise ClusterError(problems[0])


def version_problems(client: Any, seconds: float) -> list[str]:
    """Workers whose libraries differ from those of this process, one sentence each.

    Those whose BLAS computes for different processors are none of them: a warning says so.
    """
    own, problems, processors = versions(), [], Counter[str]()
    for address, (answer, processor) in ask_workers(client, seconds, _versions_and_blas).items():
        processors[processor] += 1
        other = {name: found for name, found in answer.items() if found != own.get(name)}
        if other:
            text = ", ".join(f"{name} {version} instead of {own.get(name)}" for name, version in other.items())
            problems.append(f"worker {address} has {text}; give workers and this process the same environment.")
    if len(processors) > 1:
        text = ", ".join(f"{count} for {processor}" for processor, count in sorted(processors.items()))
        logger.warning(
            "%s",
            f"BLAS of the workers computes for different processors, {text}: results will differ by rounding, and "
            "from run to run; use nodes of one kind, or set OPENBLAS_CORETYPE to the oldest of them on all.",
        )
    return problems


def sharing_problems(client: Any, directory: Path, seconds: float) -> list[str]:
    """Workers that cannot read and write a directory: tasks work on files in it; one sentence each."""
    directory = directory.absolute()
    probe, problems = directory / f".probe-{uuid.uuid4().hex}", []
    try:
        with storage_errors(f"writing to {directory}"):
            probe.write_text("asked")
        for address, answer in ask_workers(client, seconds, _answer, str(probe)).items():
            place = directory / f"{probe.name}-{answer}"
            if not answer.isalnum() or not place.exists():
                reason = f"cannot use it ({answer.rstrip(':')})"
                what = "wrote to another place of that name" if answer.isalnum() else reason
                problems.append(
                    f"{directory} is not shared with worker {address}, which {what}; choose an output on a file system "
                    "that every worker mounts at the same path and may write to."
                )
    finally:
        for leftover in directory.glob(f"{probe.name}*"):
            with contextlib.suppress(OSError):
                leftover.unlink()
    return problems


def versions() -> dict[str, str]:
    """Versions of what must be the same on workers, of this process."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {**{name: installed_version(name) for name in LIBRARIES}, "python": python}


@lru_cache(maxsize=1)
def libraries_digest() -> str:
    """Of this process, to be compared in every task: SHA-256 of its `versions`."""
    return digest_json(versions())


def _versions_and_blas() -> tuple[dict[str, str], str]:
    return versions(), blas_architecture()


def _answer(probe: str) -> str:
    """Read what the client wrote and write beside it: the name of that, or what went wrong."""
    own = uuid.uuid4().hex
    try:
        if Path(probe).read_text() != "asked":
            return "other contents are there"
        Path(f"{probe}-{own}").write_text("answered")
    except OSError as error:
        return f"{error.strerror or error}:"
    return own
