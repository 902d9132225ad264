"""Buckets of S3: opened by what the environment says, errors in our words; no other package knows obstore."""

from __future__ import annotations

import errno
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
from scalable_kpca.objects.places import StoredObject

__all__ = ["MissingObjectError", "ReplacedObjectError", "bucket_of", "import_obstore", "named_errors"]

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


def import_obstore() -> None:
    """ConfigError where obstore is not installed."""
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f'objects of S3 need obstore, which cannot be imported ({error}); pip install "scalable-kpca[s3]".'
        ) from error


def bucket_of(place: StoredObject) -> Any:
    """The bucket of an object, open."""
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
def named_errors(place: StoredObject, doing: str = "reading") -> Iterator[None]:
    """Errors of obstore as ours: what passes, what is refused, what is not there or not what it was."""
    from obstore import exceptions

    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError):
        raise _missing(place) from FileNotFoundError(errno.ENOENT, "no such object", str(place))
    except (exceptions.PreconditionError, exceptions.AlreadyExistsError) as error:
        raise ReplacedObjectError(f"{place} was replaced by another process") from error
    except (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise _denied(f"{doing} {place}", _reason(error)) from PermissionError(
            errno.EACCES, "access denied", str(place)
        )
    except (exceptions.BaseError, OSError) as error:
        raise _sorted(place, doing, error) from error


def _sorted(place: StoredObject, doing: str, error: Exception) -> StorageError:
    """An error that obstore has no name for, by the status that the server gave."""
    text, reason = str(error), _reason(error)
    found = re.search(r"status code: (\d{3})", text)
    status = int(found[1]) if found else None
    if ROLES in text:
        return _denied(f"{doing} {place}", "there are no credentials")
    if status in (401, 403):
        return _denied(f"{doing} {place}", reason)
    if status == 404:
        return _missing(place)
    unanswered = status is None and "HTTP error" in text and "builder error" not in text
    if unanswered or status in (408, 429) or (status is not None and status >= 500):
        # who waits for the whole time has no time to ask again
        again = "" if re.search(r"time[ds]? ?out", text) else ", also when tried again"
        return BusyError(
            f"{doing} {place} failed{again}: {reason}; see that the server at AWS_ENDPOINT_URL answers, and run the "
            "same command again: nothing finished is done twice."
        )
    return StorageError(
        f"{doing} {place} failed: {reason}; correct the URI and the variables AWS_… (AWS_ALLOW_HTTP=true for an "
        "endpoint with http://), and run the same command again."
    )


def _missing(place: StoredObject) -> MissingObjectError:
    return MissingObjectError(f"{place}: there is no such object or bucket; correct the URI.")


def _denied(what: str, reason: str) -> StorageError:
    return StorageError(
        f"{what} is not allowed: {reason}; give credentials that may, by the variables AWS_… of the environment, "
        "a credentials file or the role of the machine."
    )


def _reason(error: Exception) -> str:
    """What obstore says, on one line, without what is meant for its authors."""
    text = str(error).partition("\n\nDebug source")[0]
    said = re.findall(r"status code: (\d{3}[^:<]*)|<(?:Code|Message)>([^<]*)<", text)
    if said:
        return ": ".join("".join(groups).strip() for groups in said)
    return " ".join(text.rpartition(" - ")[2].split())[:300].rstrip(" :.")
