"""Which partitions are in a Nyström model: what makes an update idempotent, and a withdrawal possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scalable_kpca.errors import ConfigError, InvalidInputError, StorageError
from scalable_kpca.workflow.files import read_json
from scalable_kpca.workflow.layout import is_digest

__all__ = ["Ledger", "Partition", "paths_called"]


@dataclass(frozen=True)
class Partition:
    """One file of rows that a model has seen.

    Attributes
    ----------
    path : str
        Where it was.
    fingerprint : str
        Of its contents and of the columns in use.
    rows : int
    residual : float or None
        Share of its trace that the landmarks do not reach; None for those of the base run, which has one for all.
    own : str or None
        Its own sums, below the run directory; None where they are part of the base run's.
    """

    path: str
    fingerprint: str
    rows: int
    residual: float | None = None
    own: str | None = None


@dataclass(frozen=True)
class Ledger:
    """Partitions of a model, in the order in which they came.

    Attributes
    ----------
    base : str
        Fingerprint of the run whose landmarks these are.
    residual : float
        Share of the base run's trace that they do not reach, or that rounding hides: what drift is measured against.
    partitions : tuple of Partition
    """

    base: str
    residual: float
    partitions: tuple[Partition, ...]

    @classmethod
    def read(cls, run: Path) -> Ledger:
        """Ledger of a run; StorageError when there is none that can be read."""
        try:
            fields = read_json(run / "ledger.json")
            partitions = tuple(Partition(**entry) for entry in fields["partitions"])
            if not is_digest(fields["base"]) or not all(_is_sound(partition) for partition in partitions):
                raise ValueError("it is not what is written")  # noqa: TRY301
            return cls(fields["base"], float(fields["residual"]), partitions)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{run / 'ledger.json'} is missing or damaged; `skpca run` with the configuration of this output "
                "makes a new base."
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        entries = [asdict(partition) for partition in self.partitions]
        return {"base": self.base, "residual": self.residual, "partitions": entries}

    def find(self, names: Sequence[str]) -> tuple[Partition, ...]:
        """Partitions by their paths, or by file names that only one of them has; each once."""
        return tuple(dict.fromkeys(self._find(name) for name in names))

    def _find(self, name: str) -> Partition:
        named = paths_called(name, [p.path for p in self.partitions])
        found = [p for p in self.partitions if p.path in named]
        if len(found) != 1:
            known = ", ".join(p.path for p in self.partitions[-8:])
            raise ConfigError(
                f"{name!r} names {len(found)} partitions of this model, one is needed; the latest are {known}."
            )
        return found[0]

    def without(self, withdrawn: Sequence[Partition]) -> Ledger:
        """The same without some partitions."""
        return replace(self, partitions=tuple(p for p in self.partitions if p not in withdrawn))

    def with_more(self, more: Sequence[Partition]) -> Ledger:
        """The same with more partitions."""
        return replace(self, partitions=(*self.partitions, *more))

    def drift(self, parts: Sequence[Partition]) -> dict[str, float]:
        """Of each path: the share of its trace that the landmarks leave out, over that of the base run's rows."""
        return {part.path: self._ratio(part.residual or 0.0) for part in parts}

    def _ratio(self, residual: float) -> float:
        if self.residual > 0:
            return residual / self.residual
        return 1.0 if residual == 0 else float("inf")

    def check_new(self, path: str, fingerprint: str) -> bool:
        """Whether a file is not in the model; InvalidInputError when its path is, with other contents."""
        if any(p.fingerprint == fingerprint for p in self.partitions):
            return False
        if any(p.path == path for p in self.partitions):
            raise InvalidInputError(
                f"{path} is in the model with other contents; withdraw what it was (--withdraw {Path(path).name}) in "
                "the same command, or give the new rows another name."
            )
        return True


def _is_sound(part: Partition) -> bool:
    """Whether its fields are what they are called, and its sums where they are kept: nowhere else is anything read."""
    return (
        isinstance(part.path, str)
        and is_digest(part.fingerprint)
        and type(part.rows) is int
        and part.rows >= 0
        and (part.residual is None or isinstance(part.residual, int | float))
        and part.own in (None, f"contributions/{part.fingerprint}.npz")
    )


def paths_called(name: str, paths: Sequence[str]) -> list[str]:
    """Those of some paths that a name means: the one of that path, or else whatever has that file name."""
    same = [path for path in paths if path in (name, str(Path(name).resolve()))]
    return same or [path for path in paths if Path(path).name == name]
