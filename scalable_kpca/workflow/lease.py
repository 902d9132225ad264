"""One writer for an output on S3: a lock that its owner renews, and that others take when it no longer does.

Nothing of a process can be seen from another machine, so that a lock without an end would be left by each one that was
killed. A lease is no proof: an owner that slept may wake up and go on. What it may not do is publish, see
`remote.RemoteOutput.point_to`: the pointer is replaced only where it is still the one that its writer has seen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scalable_kpca.documents import format_json, parse_json
from scalable_kpca.errors import LockedError, StorageError
from scalable_kpca.objects import ReplacedObjectError, StoredObject, read_object, replace_object
from scalable_kpca.workflow.owner import owner_is_dead, owner_name, process_identity

__all__ = ["Lease", "abandon_leases", "free_lease", "lease_owner", "remote_lease"]

LEASE_SECONDS = 300.0  # without a renewal, as another process sees it by its own clock; two requests may hang for 120
SURE_SHARE = 0.75  # of them, in which an owner takes its lease for granted
RENEW_SECONDS = 15.0
LOOK_SECONDS = 1.0
LAST_SECONDS = 1.0  # for a process that is about to end
NOBODYS_TAG = '"00000000000000000000000000000000"'

logger = logging.getLogger(__name__)

_held: set[Lease] = set()  # by this process


class Lease:
    """A lock on S3 that is held, and renewed by a thread of its own.

    Parameters
    ----------
    place : StoredObject
        The lock: JSON with its owner.
    token : str
        What distinguishes this owner, also where an answer got lost.
    tag : str
        ETag of what it has written there.
    """

    def __init__(self, place: StoredObject, token: str, tag: str) -> None:
        self.place, self._token, self._tag = place, token, tag
        self._is_lost, self._renewed = False, _now()
        self._renewing, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="skpca-lease", daemon=True)
        self._thread.start()
        _held.add(self)

    def require(self) -> None:
        """LockedError when another process has it by now, or may have taken it while this one could not renew it."""
        if not self._is_lost and _now() - self._renewed < SURE_SHARE * LEASE_SECONDS:
            return
        self.confirm()

    def confirm(self) -> None:
        """Renew it now: LockedError when another process has it, or when that cannot be told."""
        try:
            self._renew()
        except OSError as error:
            raise LockedError(
                f"{self.place} cannot be renewed ({error}); nothing more is written: run again."
            ) from error
        if self._is_lost:
            raise LockedError(
                f"{self.place} was taken by another process while this one, process {os.getpid()}, could not renew "
                "it; nothing is published: run again."
            )

    def release(self) -> None:
        """Give it back if it is still held; what cannot be written does not hide how a run ended."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._renew(_content(None, self._token))
        _held.discard(self)

    def _keep(self) -> None:
        while not self._is_lost and not self._ended.wait(RENEW_SECONDS):
            try:
                self._renew()
            except OSError as error:  # until it is too late, and somebody has taken it
                logger.warning("%s", f"{self.place} could not be renewed, and is tried again: {error}")

    def _renew(self, content: bytes | None = None) -> None:
        """Write it again; an earlier attempt that was stored, and not answered, is known by its token."""
        with self._renewing:
            if self._is_lost or (content is None and self._ended.is_set()):
                return
            started = _now()  # others may have seen it from here on
            content = content or _content(process_identity(os.getpid()), self._token)
            try:
                self._tag = replace_object(self.place, content, self._tag)
            except ReplacedObjectError:
                found = read_object(self.place)
                if found is None or _field(found[0], "token") != self._token:
                    self._is_lost = True
                    return
                self._tag = replace_object(self.place, content, found[1])
            self._renewed = started


@contextmanager
def remote_lease(place: StoredObject) -> Iterator[Lease]:
    """Hold the lock of an output on S3 for the time of a run.

    Raises
    ------
    LockedError
        When a process that is alive holds it; the message names process and host.
    MissingObjectError, BusyError, StorageError
        When there is no such bucket, when the server does not answer now, or refuses.

    Notes
    -----
    Where the owner cannot be seen, it takes up to `LEASE_SECONDS` to know whether it is alive.
    """
    token = uuid.uuid4().hex
    lease = Lease(place, token, _acquire(place, token))
    try:
        yield lease
    finally:
        lease.release()


def lease_owner(place: StoredObject) -> dict[str, Any] | None:
    """Identity of who holds a lock; None when nobody does, an empty one when it cannot be read."""
    return _read(place)[0]


def free_lease(place: StoredObject, *, force: bool = False) -> dict[str, Any] | None:
    """Take a lock from a dead owner, or with `force` from any; who held it, None when nobody did.

    Raises
    ------
    LockedError
        When the owner may be alive and `force` is not set, or it was renewed just now.
    """
    owner, tag = _read(place)
    if owner is None:
        return None
    if not force and not owner_is_dead(owner):
        raise LockedError(
            f"{place} is held by {owner_name(owner)}, whose death is not proven; a run takes it by itself when it was "
            f"not renewed for {LEASE_SECONDS:g} s. Wait for it, or see that it has ended and use --force."
        )
    try:
        replace_object(place, _content(None), tag)
    except ReplacedObjectError as error:
        raise LockedError(f"{place} was renewed by its owner just now: {owner_name(owner)} is alive.") from error
    return owner


def abandon_leases() -> None:
    """Give back every lease of this process, which is about to end without unwinding, as far as a second allows."""
    givers = [threading.Thread(target=lease.release, daemon=True) for lease in tuple(_held)]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join(LAST_SECONDS)


def _acquire(place: StoredObject, token: str) -> str:
    """ETag of the lock that is ours now."""
    owner, tag = _read(place)
    if owner is not None and not owner_is_dead(owner):
        tag = _await_end(place, owner, tag)
    try:
        mine = replace_object(place, _content(process_identity(os.getpid()), token), tag)
    except ReplacedObjectError as error:
        raise LockedError(f"{place} was taken by another process just now; wait for it and run again.") from error
    for wrong in (None, NOBODYS_TAG):
        _require_refusal(place, wrong)
    return mine


def _require_refusal(place: StoredObject, wrong: str | None) -> None:
    """StorageError where a server does not know conditions: there, two writers at once would both win."""
    try:
        replace_object(place, _content(None), wrong)
    except ReplacedObjectError:
        return
    raise StorageError(
        f"the server of {place} writes objects whatever the condition (If-None-Match, If-Match), so that two runs at "
        "once could mix their results; use a store that knows conditional writes, as S3 does, or a directory."
    )


def _await_end(place: StoredObject, owner: dict[str, Any], tag: str | None) -> str | None:
    """ETag of a lock that was given back or not renewed for so long; LockedError as soon as it is renewed."""
    logger.warning(
        "%s", f"{place} is held by {owner_name(owner)}; whether it is alive shows within {LEASE_SECONDS:g} s"
    )
    deadline = time.monotonic() + LEASE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        owner_now, tag_now = _read(place)
        if owner_now is None:
            return tag_now
        if tag_now != tag:
            raise LockedError(
                f"{place} is held by {owner_name(owner_now)}, which is alive; wait for it and run again, or remove the "
                "lock if that process is certainly gone: skpca unlock OUTPUT --force."
            )
    return tag


def _read(place: StoredObject) -> tuple[dict[str, Any] | None, str | None]:
    """Owner and ETag of a lock; None for what there is not."""
    found = read_object(place)
    return (None, None) if found is None else (_owner(found[0]), found[1])


def _content(owner: dict[str, Any] | None, token: str = "") -> bytes:
    """A lock, different each time: its ETag says whether it was written again."""
    return format_json({"owner": owner, "token": token, "written": uuid.uuid4().hex}).encode()


def _owner(content: bytes) -> dict[str, Any] | None:
    owner = _field(content, "owner")
    return owner if owner is None or isinstance(owner, dict) else {}


def _field(content: bytes, name: str) -> Any:
    """A value in a lock; an empty owner, who is nobody that could be known, where it cannot be read."""
    try:
        return parse_json(content)[name]
    except (ValueError, KeyError, TypeError):
        return {}


def _now() -> float:
    """Seconds that pass also while the machine is suspended, where it can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
