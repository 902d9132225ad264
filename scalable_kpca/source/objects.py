"""Objects of S3, read where they are; no other module knows obstore."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from configparser import ConfigParser, Error
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from scalable_kpca.errors import BusyError, ConfigError, StorageError
from scalable_kpca.source.places import StoredObject

__all__ = [
    "MissingObjectError",
    "ObjectFile",
    "ReplacedObjectError",
    "has_object",
    "list_objects",
    "object_state",
    "open_object",
]

# of one request; some six seconds where a server refuses at once
RETRY: dict[str, Any] = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4), "base": 2},
}
TIMEOUT = "120s"  # of one answer, of up to some 32 MiB
KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")
BESIDES = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")  # in place of a credentials file
ROLES = "169.254."  # where a machine or a container is asked for its role: the last resort


class MissingObjectError(StorageError):
    """There is no such object or bucket."""


class ReplacedObjectError(OSError):
    """An object is not the one that was opened; as for files, whoever reads it says what that means."""


class ObjectFile(io.RawIOBase):
    """An object, opened for reading: whatever is asked for is one request for so many bytes.

    Parameters
    ----------
    place : StoredObject

    Raises
    ------
    MissingObjectError, BusyError, StorageError
        When it is not there, when the server does not answer now, or refuses.
    ReplacedObjectError
        From `read`, when it was written anew after it was opened.

    Notes
    -----
    Nothing is kept. Concurrency: one reader at a time, as of any file.
    """

    def __init__(self, place: StoredObject) -> None:
        super().__init__()
        self._place, self._at = place, 0
        meta = _head(place)
        self.n_bytes, self._tag = int(meta["size"]), meta["e_tag"]

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte, as of any file."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.n_bytes}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes; fewer at the end."""
        import obstore

        left = max(0, self.n_bytes - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        options: dict[str, Any] = {"range": (self._at, self._at + count)}
        if self._tag is not None:
            options["if_match"] = self._tag
        with _named_errors(self._place):
            content = bytes(obstore.get(_store(self._place), self._place.key, options=options).bytes())  # type: ignore[arg-type]
        if len(content) != count:
            raise ReplacedObjectError(f"{len(content)} of {count} bytes came")
        self._at += count
        return content


def open_object(uri: str) -> ObjectFile:
    """The object behind a URI; see `ObjectFile`."""
    return ObjectFile(StoredObject.of(uri))


def has_object(place: StoredObject) -> bool:
    """Whether there is an object of just this key."""
    try:
        return bool(place.key) and _head(place) is not None
    except MissingObjectError:
        return False


def object_state(uri: str) -> list[int | str | None] | None:
    """What changes whenever an object is written: size, ETag and time; None when it is not there."""
    try:
        meta = _head(StoredObject.of(uri))
    except MissingObjectError:
        return None
    return [int(meta["size"]), meta["e_tag"], meta["last_modified"].isoformat()]


def list_objects(below: StoredObject) -> list[StoredObject]:
    """Objects whose keys begin with the pieces of a key.

    Raises
    ------
    MissingObjectError, BusyError, StorageError
        When there is no such bucket, when the server does not answer now, or refuses.
    """
    _import_obstore()
    import obstore

    with _named_errors(below):
        listing = obstore.list(_store(below), below.key or None)
        return [StoredObject(below.bucket, meta["path"]) for chunk in listing for meta in chunk]


def _import_obstore() -> None:
    """ConfigError where obstore is not installed."""
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f'sources on S3 need obstore, which cannot be imported ({error}); pip install "scalable-kpca[s3]".'
        ) from error


def _head(place: StoredObject) -> Any:
    _import_obstore()
    import obstore

    with _named_errors(place):
        return obstore.head(_store(place), place.key)


def _store(place: StoredObject) -> Any:
    return _open_store(place.bucket, os.getpid())  # not across a fork: threads of obstore stay behind


@lru_cache(maxsize=32)
def _open_store(bucket: str, _process: int) -> Any:
    """A bucket, by the variables AWS_… of the environment, a credentials file, or the role of the machine."""
    from obstore.store import S3Store

    _check_endpoint()
    # in client_options it would take away what the environment says, such as AWS_ALLOW_HTTP
    timeout = {} if os.environ.get("AWS_TIMEOUT") else {"timeout": TIMEOUT}
    return S3Store(bucket, retry_config=RETRY, **timeout, **_from_credentials_file())  # type: ignore[arg-type]


def _check_endpoint() -> None:
    """ConfigError for what is no address: obstore would panic."""
    for name in ENDPOINTS:
        value = os.environ.get(name, "")
        if value and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
            raise ConfigError(f"{name} is no address; it begins with http:// or https:// and names a server.")


def _from_credentials_file() -> dict[str, str]:
    """Keys of a profile, where the environment has no others."""
    if any(os.environ.get(name) for name in BESIDES):
        return {}
    place = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    parser, profile = ConfigParser(interpolation=None), os.environ.get("AWS_PROFILE") or "default"
    try:
        parser.read(place, encoding="utf-8")
    except (Error, UnicodeDecodeError):  # whose texts repeat lines of it
        raise ConfigError(f"{place} is no credentials file; correct it.") from None
    section = parser[profile] if parser.has_section(profile) else {}
    return {key: section[key] for key in KEYS if key in section}


@contextmanager
def _named_errors(place: StoredObject) -> Iterator[None]:
    """Errors of obstore as ours: what passes, what is refused, what is not there."""
    from obstore import exceptions

    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError):
        raise _missing(place) from FileNotFoundError(errno.ENOENT, "no such object", str(place))
    except exceptions.PreconditionError as error:
        raise ReplacedObjectError("it was replaced after it was opened") from error
    except (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise _denied(place, _reason(error)) from PermissionError(errno.EACCES, "access denied", str(place))
    except (exceptions.BaseError, OSError) as error:
        raise _sorted(place, error) from error


def _sorted(place: StoredObject, error: Exception) -> StorageError:
    """An error that obstore has no name for, by the status that the server gave."""
    text, reason = str(error), _reason(error)
    found = re.search(r"status code: (\d{3})", text)
    status = int(found[1]) if found else None
    if ROLES in text:
        return _denied(place, "there are no credentials")
    if status == 404:
        return _missing(place)
    unanswered = status is None and "HTTP error" in text and "builder error" not in text
    if unanswered or status in (408, 429) or (status is not None and status >= 500):
        return BusyError(
            f"reading {place} failed, also when tried again: {reason}; see that the server at AWS_ENDPOINT_URL "
            "answers, and run the same command again: nothing finished is done twice."
        )
    return StorageError(
        f"reading {place} failed: {reason}; correct the URI and the variables AWS_… (AWS_ALLOW_HTTP=true for an "
        "endpoint with http://), and run the same command again."
    )


def _missing(place: StoredObject) -> MissingObjectError:
    return MissingObjectError(f"{place}: there is no such object or bucket; correct the URI.")


def _denied(place: StoredObject, reason: str) -> StorageError:
    return StorageError(
        f"reading {place} is not allowed: {reason}; give credentials that may read it, by the variables AWS_… of the "
        "environment, a credentials file or the role of the machine."
    )


def _reason(error: Exception) -> str:
    """What obstore says, on one line, without what is meant for its authors."""
    text = str(error).partition("\n\nDebug source")[0]
    said = re.findall(r"status code: (\d{3}[^:<]*)|<(?:Code|Message)>([^<]*)<", text)
    if said:
        return ": ".join("".join(groups).strip() for groups in said)
    return " ".join(text.rpartition(" - ")[2].split())[:300].rstrip(" :.")
