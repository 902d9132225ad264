"""The working directory of an output on S3: what it holds is what is published, and work in progress beside it.

Everything that a run does is done in that directory, by the same code as without S3; before that, the run in force is
brought here, and afterwards the results go there. Whoever loses the directory loses rows, tiles and journals, which the
next run makes again, and nothing that has been published.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_kpca.disk import remove_tree, scratch_directory, sync
from scalable_kpca.errors import ConfigError, StorageError, UnreadableError, storage_errors
from scalable_kpca.machine import cache_directory
from scalable_kpca.objects import MissingObjectError, StoredObject, is_object
from scalable_kpca.records import digest_json
from scalable_kpca.workflow.files import make_private, read_json, remove_file, write_json
from scalable_kpca.workflow.layout import MARK, RESULTS, Output, RunDirectory, fence_of
from scalable_kpca.workflow.lease import Lease, free_lease, remote_lease
from scalable_kpca.workflow.lock import output_lock, release_lock
from scalable_kpca.workflow.remote import COMMIT, Publication, RemoteOutput

__all__ = [
    "RemoteWriter",
    "claim",
    "fetched",
    "output_at",
    "published_uri",
    "refresh",
    "remote_writing",
    "retain_remote",
    "unlock_output",
]

ATTEMPTS = 3  # to bring a run here that is replaced and removed meanwhile

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteWriter:
    """The one process that may publish to an output on S3.

    Attributes
    ----------
    output : RemoteOutput
    lease : Lease
    known : str or None
        ETag of the pointer when the lease was taken: whoever has replaced it since has won.
    """

    output: RemoteOutput
    lease: Lease
    known: str | None

    def upload(self, run: RunDirectory, fence: int) -> StoredObject:
        """Put the results of a run there; see `RemoteOutput.upload`."""
        with storage_errors(f"publishing {run.path} to {self.output.place}"):
            return self.output.upload(run, fence, self.lease.require)

    def point_to(self, run: RunDirectory, place: StoredObject, fence: int) -> None:
        """Put it in force; see `RemoteOutput.point_to`."""
        self.lease.require()
        self.output.point_to(run, place, fence, self.known)

    def sweep(self) -> None:
        """Remove what writers that have died left half written, and other places of a run than the last one."""
        try:
            self.lease.require()
            self.output.remove(_sorted_out(self.output)[1])
        except OSError as error:  # the next one tries again
            logger.warning("%s", f"{self.output.place}: what was left there could not be removed: {error}")


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
    Nothing is brought to an output that is a directory. Cost: two requests, and one for each page of a listing, where
    the run is here already; else its bytes, each file checked by its digest.
    """
    _check_mark(output)
    if output.remote is None or _is_up_to_date(output, RemoteOutput(output.remote)):
        return
    claim(output)
    with output_lock(output.lock):
        _bring(output, RemoteOutput(output.remote))


@contextmanager
def remote_writing(output: Output) -> Iterator[RemoteWriter | None]:
    """The lock of an output on S3 and its run in force, for the holder of the lock of the working directory.

    Raises
    ------
    LockedError
        When another process writes there.
    """
    if output.remote is None:
        yield None
        return
    remote = RemoteOutput(output.remote)
    with remote_lease(remote.lock) as lease:
        yield RemoteWriter(remote, lease, _bring(output, remote))


def published_uri(output: Output, run: RunDirectory) -> str | None:
    """Where on S3 a run is published; None for an output that is a directory, and for a run that is not in force."""
    if output.remote is None:
        return None
    pointer, _ = RemoteOutput(output.remote).read_pointer()
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
    return there or owner


def retain_remote(writer: RemoteWriter, run: RunDirectory, keep: int) -> None:
    """Remove there all but the last `keep` runs, and those that they go on with; see `retention.retain`."""
    there, _ = _sorted_out(writer.output)
    facts = {name: writer.output.fence_and_previous(one) for name, one in there.items()}
    needed = _needed(run.fingerprint, facts, keep)
    writer.lease.require()
    writer.output.remove([one for name, one in there.items() if name not in needed])


def _sorted_out(remote: RemoteOutput) -> tuple[dict[str, Publication], list[Publication]]:
    """Each run that is there, in the place that is in force or was written last, and everything else."""
    pointer, _ = remote.read_pointer()
    current = None if pointer is None else remote.place / pointer["path"]
    there: dict[str, Publication] = {}
    rest = []
    for one in sorted(remote.publications(), key=lambda one: one.place != current):
        if one.fingerprint in there or one.commit_list() is None:
            rest.append(one)
        else:
            there[one.fingerprint] = one
    return there, rest


def _needed(current: str, facts: dict[str, tuple[int, str | None]], keep: int) -> set[str]:
    """Runs that stay: the last `keep` ones, and those whose scores they go on with."""
    others = sorted((name for name in facts if name != current), key=lambda name: facts[name][0], reverse=True)
    needed: set[str] = set()
    for name in (current, *others[: keep - 1]):
        following: str | None = name
        while following is not None and following not in needed:
            needed.add(following)
            following = facts[following][1] if following in facts else None
    return needed


def _is_up_to_date(output: Output, remote: RemoteOutput) -> bool:
    """Whether the run in force there is in force here, and all of it is there and here."""
    pointer, _ = remote.read_pointer()
    if pointer is None:
        return not output.path.exists() or read_json(output.path / "latest.json") is None
    try:
        latest = output.latest()
    except UnreadableError:
        raise
    except StorageError:
        return False
    if latest is None or latest.fingerprint != pointer["run"]:
        return False
    one = _publication(remote, pointer)
    return one is not None and _content(latest) == one.commit_list()


def _bring(output: Output, remote: RemoteOutput) -> str | None:
    """Bring here what is in force there, and give the ETag of its pointer; the lock of the directory is held."""
    for attempt in range(1, ATTEMPTS + 1):
        pointer, tag = remote.read_pointer()
        try:
            if pointer is None or not _bring_runs(output, remote, pointer):
                remove_file(output.path / "latest.json")  # what is nowhere else is not in force
            else:
                write_json(output.path / "latest.json", {"run": pointer["run"], "fence": fence_of(pointer)})
        except MissingObjectError:
            if attempt == ATTEMPTS:
                raise
            continue
        break
    return tag


def _bring_runs(output: Output, remote: RemoteOutput, pointer: dict[str, Any]) -> bool:
    """Bring a run and those that it goes on with; False where it is there no longer, or not whole."""
    one = _publication(remote, pointer)
    name: str | None = pointer["run"]
    if one is None or one.commit_list() is None:
        logger.warning("%s", f"{remote.place}: objects of the run in force are missing there; it is published again")
        return False
    seen: set[str] = set()
    while name is not None and name not in seen:
        seen.add(name)
        if one is None:
            logger.warning("%s", f"{remote.place}: run {name} is missing, with which later ones go on")
            break
        run = output.run(name)
        if _content(run) != one.commit_list():
            _fetch(run, one)
        described = read_json(run.path / "run.json")
        name = described.get("previous") if isinstance(described, dict) else None
        one = None if name is None else next((o for o in remote.publications(name) if o.commit_list()), None)
    return True


def _publication(remote: RemoteOutput, pointer: dict[str, Any]) -> Publication | None:
    """What a pointer names, None where nothing is there."""
    place = remote.place / pointer["path"]
    return next((one for one in remote.publications(pointer["run"]) if one.place == place), None)


def _fetch(run: RunDirectory, one: Publication) -> None:
    """Bring results here in the place of others, the commit list last; work in progress beside them stays."""
    logger.info("%s", f"{one.place} is brought to {run.path}")
    make_private(run.path)
    for name in (COMMIT, *RESULTS):
        remove_tree(run.path / name)
    with scratch_directory(run.path / "fetched") as scratch:
        one.fetch(scratch)
        for name in (*RESULTS, COMMIT):
            if (scratch / name).exists():
                (scratch / name).rename(run.path / name)
                sync(run.path)


def _content(run: RunDirectory) -> bytes | None:
    """Commit list of a run that is here, None where there is none that can be read."""
    try:
        return (run.path / COMMIT).read_bytes()
    except OSError:
        return None


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
