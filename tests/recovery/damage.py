"""What can happen to files on a disk: every kind of it, one file or two files at a time."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DAMAGES", "Damage", "damages_of", "flip", "swap"]

STEP = 7  # bytes between two flips in a description: every region of it, each time another bit


@dataclass(frozen=True)
class Damage:
    """One thing that happens below an output.

    Attributes
    ----------
    kind : str
    name : str
        Of the file or directory, relative to the output.
    change : callable
        Changes it; given an empty directory elsewhere, and what stands in its place in another output.
    """

    kind: str
    name: str
    change: Callable[[Path, Path, Path], None]

    def do(self, output: Path, elsewhere: Path, another: Path) -> None:
        """Let it happen."""
        self.change(output / self.name, elsewhere, another / self.name)

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}"


def flip(position: float | int, bit: int = 4) -> Callable[..., None]:
    """One bit of a file at a byte, or at a share of its length."""

    def damage(file: Path, *_: Path) -> None:
        data = bytearray(file.read_bytes())
        place = position if isinstance(position, int) else int(position * (len(data) - 1))
        data[place] ^= 1 << bit
        file.write_bytes(data)

    return damage


def truncate(file: Path, *_: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path, *_: Path) -> None:
    file.write_bytes(b"")


def zero(file: Path, *_: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def extend(file: Path, *_: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0extended")


def delete(file: Path, *_: Path) -> None:
    shutil.rmtree(file) if file.is_dir() else file.unlink()


def replace_by_directory(file: Path, *_: Path) -> None:
    delete(file)
    file.mkdir()


def replace_by_file(directory: Path, *_: Path) -> None:
    shutil.rmtree(directory)
    directory.write_bytes(b"in its place")


def link_to_copy(file: Path, elsewhere: Path, _: Path) -> None:
    file.rename(elsewhere / "copy")
    file.symlink_to(elsewhere / "copy")


def link_to_nowhere(file: Path, elsewhere: Path, _: Path) -> None:
    delete(file)
    file.symlink_to(elsewhere / "nothing")


def swap(file: Path, other: Path) -> None:
    """Each in the place of the other."""
    aside = file.with_name("aside")
    file.rename(aside)
    other.rename(file)
    aside.rename(other)


def replace_by_another_jobs(file: Path, _: Path, another: Path) -> None:
    shutil.copyfile(another, file)


DAMAGES: dict[str, Callable[[Path, Path, Path], None]] = {
    "first byte flipped": flip(0.0),
    "middle byte flipped": flip(0.5),
    "last byte flipped": flip(1.0, 0),
    "truncated": truncate,
    "emptied": empty,
    "zeroed": zero,
    "extended": extend,
    "deleted": delete,
    "a directory": replace_by_directory,
    "a link to a copy": link_to_copy,
    "a link to nowhere": link_to_nowhere,
}

DIRECTORY_DAMAGES: dict[str, Callable[[Path, Path, Path], None]] = {
    "deleted": delete,
    "a file": replace_by_file,
    "a link to a copy": link_to_copy,
}


def damages_of(output: Path, another: Path, every: int, *, bits: int = 1) -> Iterator[Damage]:
    """Every `every`-th damage of an output and, apart from that, of the single bits of its descriptions.

    Parameters
    ----------
    another : Path
        Output of another job in the same state: where it has a file of the same name, that may come in its place.
    every : int
    bits : int
        Of the single bits, so many times fewer.
    """
    kinds, flips = list(_kinds_of(output, another)), list(_flips_of(output))
    yield from kinds[len(kinds) % min(every, len(kinds)) :: every]
    # there are several times as many, and most do the same
    step = bits * every * (5 if every > 1 else 1)
    yield from flips[len(flips) % step :: step]


def _kinds_of(output: Path, another: Path) -> Iterator[Damage]:
    alike: dict[str, list[str]] = {}
    for path in sorted(output.rglob("*")):
        name = str(path.relative_to(output))
        alike.setdefault(re.sub(r"\d+", "#", name), []).append(name)
    for names in alike.values():
        kinds = DIRECTORY_DAMAGES if (output / names[0]).is_dir() else DAMAGES
        shares = max(1, len(names) // 3)  # of many files that are alike, each gets its share, and all get everything
        for number, name in enumerate(names):
            for kind in list(kinds)[number % shares :: shares]:
                yield Damage(kind, name, kinds[kind])
    files = {name: names for names in alike.values() for name in names if (output / name).is_file()}
    for name, names in files.items():
        if (another / name).is_file() and (another / name).read_bytes() != (output / name).read_bytes():
            yield Damage("another job's", name, replace_by_another_jobs)
        other = names[(names.index(name) + 1) % len(names)]
        if other > name or (other < name and len(names) > 2):
            yield Damage(f"swapped with {other}", name, _swap_with(other))


def _flips_of(output: Path) -> Iterator[Damage]:
    for path in sorted(output.rglob("*.json")):
        for position in range(0, path.stat().st_size, STEP):
            bit = position // STEP % 8
            yield Damage(f"bit {bit} of byte {position} flipped", str(path.relative_to(output)), flip(position, bit))


def _swap_with(other: str) -> Callable[[Path, Path, Path], None]:
    def swap_both(file: Path, *_: Path) -> None:
        swap(file, next(parent / other for parent in file.parents if (parent / other).exists()))

    return swap_both
