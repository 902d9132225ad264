"""Copies of CSV and Arrow files are whole or not there, made once, and never left half made for long."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from scalable_kpca.errors import InvalidInputError, StorageError
from scalable_kpca.source import Copies, CsvOptions, copies, open_source, remove_copies
from scalable_kpca.source.copy_files import new_copy
from tests.support import tmpfs

TEXT = "id,x\n" + "".join(f"{number},{number / 8}\n" for number in range(100))

OPEN = """
import sys
from pathlib import Path
from scalable_kpca.source import Copies, open_source
here = Path(sys.argv[1])
print(open_source("a.csv", here, id_columns=["id"], copies=Copies(here / "tables")).n_samples)
"""
KILLED = OPEN.replace(
    "here =",
    """import os, signal
from scalable_kpca.source.written import RowGroupWriter
RowGroupWriter.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)
here =""",
)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT)
    return tmp_path / "a.csv"


def opened(folder, uri="a.csv", **options):
    return open_source(uri, folder, id_columns=["id"], copies=Copies(folder / "tables", **options))


def names_in(folder):
    return sorted(place.name for place in (folder / "tables").iterdir())


def total(source):
    return sum(float(batch.rows.sum()) for batch in source.batches())


def test_copy_is_made_once_for_a_content_and_the_way_that_it_is_read(file, monkeypatch):
    made = []
    write = copies.write_copy
    monkeypatch.setattr(copies, "write_copy", lambda *given: made.append(given[0].name) or write(*given))
    expected = total(opened(file.parent))
    (file.parent / "b.csv").write_text(TEXT)
    assert total(opened(file.parent, "b.csv")) == expected
    assert total(opened(file.parent)) == expected
    assert made == ["a.csv"]
    opened(file.parent, csv=CsvOptions(types=(("id", "string"),)))
    opened(file.parent, csv=CsvOptions(types=(("id", "string"),)))
    assert made == ["a.csv", "a.csv"]
    assert len(names_in(file.parent)) == 2


def test_copies_are_for_their_owner_only(file):
    opened(file.parent)
    assert (file.parent / "tables").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "spoil",
    [lambda data: data[:-1], lambda _: b"", lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:]],
    ids=["short", "empty", "flipped"],
)
def test_damaged_copy_is_made_again(file, spoil, caplog):
    expected = total(opened(file.parent))
    (copy,) = (file.parent / "tables").iterdir()
    before = copy.read_bytes()
    copy.write_bytes(spoil(before))
    assert total(opened(file.parent)) == expected
    assert copy.read_bytes() == before
    assert "is damaged and made again" in caplog.text


def test_identity_is_that_of_the_file_and_of_how_it_is_read(file):
    source = opened(file.parent)
    assert opened(file.parent).fingerprint() == source.fingerprint()
    other = opened(file.parent, csv=CsvOptions(null_values=("-",)))
    assert other.part_fingerprints() != source.part_fingerprints()
    before = source.fingerprint()
    file.write_text(TEXT.replace("99,", "98,"))
    assert source.fingerprint() != before


def test_file_that_changes_while_it_is_copied_has_no_copy(file, monkeypatch):
    write = copies.write_copy

    def write_and_change(*given):
        write(*given)
        file.write_text(TEXT + "100,0\n")

    monkeypatch.setattr(copies, "write_copy", write_and_change)
    with pytest.raises(InvalidInputError, match=r"a\.csv changed while it was read; run again"):
        opened(file.parent)
    assert names_in(file.parent) == []


def test_copy_that_must_be_there_is_not_made(file):
    with pytest.raises(InvalidInputError, match=r"a\.csv has no copy in"):
        opened(file.parent, make=False)
    opened(file.parent)
    assert opened(file.parent, make=False).n_samples == 100


def test_processes_that_copy_at_once_all_end_with_a_whole_copy(file):
    command = [sys.executable, "-c", OPEN, str(file.parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in running] == ["100\n"] * 3
    assert len(names_in(file.parent)) == 1
    assert names_in(file.parent)[0].endswith(".parquet")


def test_killed_copy_is_swept_by_the_next(file):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file.parent)], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [name.endswith(".new") for name in names_in(file.parent)] == [True]
    opened(file.parent)
    assert [name.endswith(".parquet") for name in names_in(file.parent)] == [True]


def test_copy_that_is_being_made_is_not_swept(file):
    opened(file.parent)
    with new_copy(file.parent / "tables", 64 * "0") as staging:
        remove_copies(file.parent / "tables", ())
        assert staging.exists()
    assert not staging.exists()


def test_copies_in_use_stay(file):
    source = opened(file.parent)
    other = opened(file.parent, csv=CsvOptions(null_values=("-",)))
    (file.parent / "tables" / "notes.txt").write_text("somebody else's")
    remove_copies(file.parent / "tables", ())
    assert len(names_in(file.parent)) == 3
    other.release()
    del other
    source.release()
    remove_copies(file.parent / "tables", source.copy_names)
    assert names_in(file.parent) == sorted([*source.copy_names, "notes.txt"])
    remove_copies(file.parent / "tables", ())
    assert names_in(file.parent) == ["notes.txt"]
    remove_copies(file.parent / "none", ())


def test_no_link_is_followed(file, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (file.parent / "tables").symlink_to(elsewhere)
    with pytest.raises(StorageError, match=r"tables is a link, which is not followed"):
        opened(file.parent)
    (elsewhere / f"{64 * '0'}.{64 * '0'}.parquet").write_text("not ours to remove")
    remove_copies(file.parent / "tables", ())
    assert len(list(elsewhere.iterdir())) == 1
    (file.parent / "tables").unlink()
    opened(file.parent)
    (copy,) = (file.parent / "tables").iterdir()
    copy.rename(elsewhere / "copy")
    copy.symlink_to(elsewhere / "copy")
    with pytest.raises(StorageError, match=r"parquet is a link, which is not followed"):
        opened(file.parent)


def test_full_disk_is_named_and_leaves_nothing(tmp_path):
    rows = np.random.default_rng(0).standard_normal((40_000, 4))
    (tmp_path / "a.csv").write_text("id,x,y,z\n" + "\n".join(",".join(map(repr, map(float, row))) for row in rows))
    (tmp_path / "tables").mkdir()
    with tmpfs(tmp_path / "tables", "size=256k"):
        with pytest.raises(StorageError, match=r"No space left on device.*make room"):
            opened(tmp_path)
        assert list((tmp_path / "tables").iterdir()) == []
