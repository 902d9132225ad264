"""The working directory of an output on S3: what it holds is what is published, and work in progress beside it.

Everything that a run does is done in that directory, by the same code as without S3; before that, the run in force is
brought here, and afterwards the results go there. Whoever loses the directory loses rows, tiles and journals, which the
next run makes again, and nothing that has been published.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalable_kpca.disk import remove_tree, scratch_directory, sync
from scalable_kpca.errors import ConfigError, StorageError, storage_errors
from scalable_kpca.machine import cache_directory
from scalable_kpca.objects import MissingObjectError, StoredObject, is_object
from scalable_kpca.records import digest_json
from scalable_kpca.workflow.files import make_private, read_json, remove_file, write_json
from scalable_kpca.workflow.layout import MARK, RESULTS, Output, RunDirectory, fence_of, is_digest
from scalable_kpca.workflow.lease import free_lease
from scalable_kpca.workflow.lock import output_lock, release_lock
from scalable_kpca.workflow.remote import COMMIT, Publication, RemoteOutput
from scalable_kpca.workflow.versions import known_versions

__all__ = [
    "bring",
    "claim",
    "commit_list_of",
    "fetched",
    "is_published",
    "is_there",
    "output_at",
    "published_uri",
    "refresh",
    "unlock_output",
]

ATTEMPTS = 3  # to bring a run here that is replaced and removed meanwhile

logger = logging.getLogger(__name__)


def output_at(uri: str, base: Path, work: str | None = None) -> Output:
    """The output that a path or a URI ``s3://BUCKET/PREFIX`` means, as it is on this machine.

    Parameters
    ----------
    uri : str
    base : Path
        What a relative path is relative to.
    work : str, optional
        Working directory of an output on S3; by default one for each of them below the user's cache directory.

    Raises
    ------
    ConfigError
        For a working directory of an output that is none of S3.
    """
    if not is_object(uri):
        if work is not None:
            raise ConfigError(f"a working directory ({work}) is for results on S3, and {uri} is a directory itself.")
        return Output(base / uri)
    place = StoredObject.of(uri)
    path = _cache_directory(place) if work is None else base / work
    return Output(path, place)


@contextmanager
def fetched(output: Output) -> Iterator[Output]:
    """An output on S3 as it is there, brought to a directory that is gone at the end; any other one as it is."""
    if output.remote is None:
        yield output
        return
    with scratch_directory(output.path / "fetched") as scratch:
        anew = Output(scratch, output.remote)
        refresh(anew)
        yield anew


def claim(output: Output) -> None:
    """Make the directory of an output; ConfigError where it is the working directory of another one, or an output."""
    with storage_errors(f"creating {output.path}"):
        output.path.mkdir(parents=True, exist_ok=True)
        sync(output.path.parent)
    _check_mark(output)
    if output.remote is not None:
        write_json(output.path / MARK, {"output": str(output.remote)})


def refresh(output: Output) -> None:
    """Bring the run that is in force on S3, and those that it goes on with, to the working directory.

    Raises
    ------
    ConfigError
        See `claim`.
    LockedError
        When there is something to bring, and another process works in that directory.
    BusyError, StorageError
        When the server does not answer now or refuses, or what is there is damaged.

    Notes
    -----
    Nothing is brought to an output that is a directory. Cost: three requests, and one more for each further page of a
    listing, where the run is here already; else its bytes, each file checked by its digest.
    """
    _check_mark(output)
    if output.remote is None or _is_up_to_date(output, RemoteOutput(output.remote)):
        return
    claim(output)
    with output_lock(output.lock):
        bring(output, RemoteOutput(output.remote))


def published_uri(output: Output, run: RunDirectory) -> str | None:
    """Where on S3 a run is published; None for an output that is a directory, and for a run that is not in force."""
    if output.remote is None:
        return None
    try:
        pointer, _ = RemoteOutput(output.remote).read_pointer()
    except StorageError:  # it has been published; where, is only said
        return None
    return None if pointer is None or pointer["run"] != run.fingerprint else str(output.remote / pointer["path"])


def unlock_output(output: Output, *, force: bool = False) -> dict[str, Any] | None:
    """Remove the lock of an output when its owner is dead, and of one on S3 that of its working directory as well.

    Raises
    ------
    LockedError
        See `release_lock` and `free_lease`.
    """
    is_here = output.remote is None or output.path.is_dir()
    owner = release_lock(output.lock, force=force) if is_here else None
    there = None if output.remote is None else free_lease(RemoteOutput(output.remote).lock, force=force)
    return owner if there is None else there


def _is_up_to_date(output: Output, remote: RemoteOutput) -> bool:
    """Whether the run in force there is in force here, and all of it is there and here."""
    pointer, _ = remote.read_pointer()
    if pointer is None:
        return not output.path.exists() or read_json(output.path / "latest.json") is None
    latest = output.sound_latest()
    if latest is None or latest.fingerprint != pointer["run"]:
        return False
    one = _publication(remote, pointer)
    if one is None or one.commit_list() is None:
        return True  # and whoever runs next publishes it again
    return commit_list_of(latest) == one.commit_list() and all(
        run.is_committed for run in _named_versions(output, latest)
    )


def _named_versions(output: Output, run: RunDirectory) -> Iterator[RunDirectory]:
    """Runs that it goes on with as they say themselves, the last first; each is asked when it has been used."""
    seen = {run.fingerprint}
    while (name := _previous(run)) is not None and name not in seen:
        seen.add(name)
        run = output.run(name)
        yield run


def bring(output: Output, remote: RemoteOutput) -> tuple[dict[str, Any] | None, str | None]:
    """Bring here what is in force there, and give its pointer and the ETag; the lock of the directory is held.

    Notes
    -----
    What is whole here and not there stays in force here: whoever runs next publishes it again, see `is_published`.
    """
    for _ in range(ATTEMPTS):
        pointer, tag = remote.read_pointer()
        with storage_errors(f"bringing {remote.place} to {output.path}"):
            if pointer is not None and _bring_runs(output, remote, pointer):
                write_json(output.path / "latest.json", {"run": pointer["run"], "fence": fence_of(pointer)})
                return pointer, tag
        if remote.read_pointer()[1] == tag:  # else another run has taken its place, and it was removed
            break
    remove_file(output.path / "latest.json")  # what is nowhere else is not in force
    return pointer, tag


def is_published(output: Output, run: RunDirectory) -> bool:
    """Whether a run that is in force here, and those that it goes on with, are whole on S3; true of directories."""
    if output.remote is None:
        return True
    there = RemoteOutput(output.remote).publications()
    return all(is_there(one, there) for one in (run, *known_versions(output, run)))


def is_there(run: RunDirectory, there: Sequence[Publication]) -> bool:
    """Whether one of some publications is the whole of a run, of this writer or of another one."""
    same, commit_list = [one for one in there if one.fingerprint == run.fingerprint], commit_list_of(run)
    return any(commit_list is not None and one.has(commit_list) for one in same) or any(
        one.commit_list() is not None for one in same
    )


def commit_list_of(run: RunDirectory) -> bytes | None:
    """COMMIT.json of a run that is here, None where there is none that can be read."""
    try:
        return (run.path / COMMIT).read_bytes()
    except OSError:
        return None


def _bring_runs(output: Output, remote: RemoteOutput, pointer: dict[str, Any]) -> bool:
    """Bring a run and those that it goes on with; False where it is neither here nor, whole, there."""
    run, one = output.run(pointer["run"]), _publication(remote, pointer)
    if one is None or one.commit_list() is None:
        logger.warning("%s", f"{remote.place}: objects of the run in force are missing there; `skpca run` repairs it")
        return run.is_committed
    try:
        if commit_list_of(run) != one.commit_list():
            _fetch(run, one)
    except MissingObjectError:
        return False
    for earlier in _named_versions(output, run):
        if not earlier.is_committed:
            there = remote.publications(earlier.fingerprint)
            one = next((one for one in there if one.commit_list() is not None), None)
            if one is None:
                logger.warning(
                    "%s", f"{remote.place}: {earlier.fingerprint}, with which later runs go on, is not there"
                )
                break
            _fetch(earlier, one)
    return True


def _previous(run: RunDirectory) -> str | None:
    described = read_json(run.path / "run.json")
    name = described.get("previous") if isinstance(described, dict) else None
    return name if is_digest(name) else None


def _publication(remote: RemoteOutput, pointer: dict[str, Any]) -> Publication | None:
    """What a pointer names, None where nothing is there."""
    place = remote.place / pointer["path"]
    return next((one for one in remote.publications(pointer["run"]) if one.place == place), None)


def _fetch(run: RunDirectory, one: Publication) -> None:
    """Bring results here in the place of others, the commit list last; work in progress beside them stays."""
    logger.info("%s", f"{one.place} is brought to {run.path}")
    make_private(run.path)
    with scratch_directory(run.path / "fetched") as scratch:
        one.fetch(scratch)
        for name in (COMMIT, *RESULTS):
            remove_tree(run.path / name)
        for name in (*RESULTS, COMMIT):
            if (scratch / name).exists():
                (scratch / name).rename(run.path / name)
                sync(run.path)


def _check_mark(output: Output) -> None:
    known, wanted = read_json(output.path / MARK), None if output.remote is None else {"output": str(output.remote)}
    if known == wanted or (known is None and not (output.path / "runs").exists()):
        return
    if known is None:
        what = "holds results of its own"
    else:
        named = known.get("output") if isinstance(known, dict) else "?"
        what = f"is the working directory of {named}"
    raise ConfigError(f"{output.path} {what}; name another directory, or that output.")


def _cache_directory(place: StoredObject) -> Path:
    """Working directory where none is named."""
    root = cache_directory()
    if root is None:
        raise ConfigError(f"there is no home directory to work for {place} in; name a directory by output.work.")
    name = re.sub(r"[^A-Za-z0-9.-]", "_", place.name)[:40]
    return root / "outputs" / f"{name}-{digest_json(str(place))[:16]}"
