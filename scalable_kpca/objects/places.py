"""Where something is: a path of this machine, or an object of S3 with its URI."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from scalable_kpca.errors import InvalidInputError

__all__ = ["SourceFile", "StoredObject", "is_object"]

SCHEME = "s3://"


def is_object(uri: str) -> bool:
    """Whether it is on S3, and no path of this machine."""
    return uri.startswith(SCHEME)


@dataclass(frozen=True)
class StoredObject:
    """An object of S3, or the beginning of the keys of some: as much of a path as is asked for.

    Parameters
    ----------
    bucket, key : str
    """

    bucket: str
    key: str

    @classmethod
    def of(cls, uri: str) -> StoredObject:
        """What a URI ``s3://bucket/key`` names; a slash at its end says nothing."""
        bucket, _, key = uri.removeprefix(SCHEME).partition("/")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]+", bucket):
            raise InvalidInputError(f"{uri!r} names no bucket that there could be; write s3://BUCKET/KEY.")
        return cls(bucket, key.rstrip("/"))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> StoredObject:
        """What is called so below it."""
        return StoredObject(self.bucket, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """Last part of the key."""
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        """Ending of the name, with its dot."""
        return PurePosixPath(self.key).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """Pieces of the key."""
        return PurePosixPath(self.key).parts


SourceFile = Path | StoredObject
