"""A killed solve goes on by replaying its journal: record by record, in every home, and by a real kill −9."""

import errno
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from scalable_kpca import journal as module
from scalable_kpca.cli import skpca
from scalable_kpca.disk import remove_tree
from scalable_kpca.errors import CorruptTileError, StorageError
from scalable_kpca.gram import PassResult, TileCounts
from scalable_kpca.journal import Journal
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import solve_arpack, solve_block_krylov
from tests.support import gram_of, matching

N, TILE_ROWS = 47, 24
HOMES = ("memory", "zarr", "recompute")
FACTS = ("squared_norm", "error", "counts")


def blocks(count=4, width=2, dtype="float64"):
    """Vectors to multiply, as callers give them: read-only, and not all in C order."""
    rng = np.random.default_rng(0)
    made = [np.asfortranarray(rng.standard_normal((N, width)).astype(dtype)) for _ in range(count)]
    for block in made:
        block.flags.writeable = False
    return made


class Matrix:
    """Makes passes, and counts them."""

    def __init__(self):
        self.K = np.random.default_rng(1).standard_normal((N, N))
        self.n_passes = 0

    def __call__(self, block):
        self.n_passes += 1
        facts = 1 / (self.n_passes + 2), 1e-7, TileCounts(self.n_passes, 2, 1)
        return PassResult(self.K @ block, self.K.sum(axis=1), *facts, [])


def run(path, asked, fingerprint="solve"):
    """What a process learns that asks for these products: results, passes made, passes replayed."""
    matrix, journal = Matrix(), Journal(path, fingerprint)
    results = [journal.obtain(block, matrix) for block in asked]
    assert matrix.n_passes + journal.n_replayed == len(asked)
    return results, matrix.n_passes


@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_replayed_passes_are_bit_for_bit_those_that_were_made(width, dtype, tmp_path):
    asked = blocks(width=width, dtype=dtype)
    made, passes = run(tmp_path / "journal", asked)
    assert passes == len(asked)
    replayed, passes = run(tmp_path / "journal", asked)
    assert passes == 0
    for left, right in zip(made, replayed, strict=True):
        np.testing.assert_array_equal(left.product, right.product)
        np.testing.assert_array_equal(left.row_sums, right.row_sums)
        assert right.product.flags.c_contiguous
        assert right.product.dtype == np.float64
        assert [getattr(left, name) for name in FACTS] == [getattr(right, name) for name in FACTS]
    assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == [f"{i:06d}.npz" for i in range(1, 5)]


def test_what_follows_the_journal_is_made_and_logged(tmp_path):
    asked = blocks()
    run(tmp_path / "journal", asked[:2])
    assert run(tmp_path / "journal", asked)[1] == 2
    assert run(tmp_path / "journal", asked)[1] == 0


def test_records_of_another_solve_are_not_taken(tmp_path):
    asked = blocks()
    run(tmp_path / "journal", asked)
    assert run(tmp_path / "journal", asked, "another")[1] == len(asked)


@pytest.mark.parametrize("change", ["bit", "sign of zero", "dtype", "shape", "order of passes"])
def test_pass_that_multiplies_anything_else_is_made(change, tmp_path):
    asked = blocks()
    asked[1] = asked[1].copy()
    asked[1][0, 0] = 0.0
    run(tmp_path / "journal", asked)
    altered = list(asked)
    if change == "bit":
        altered[1] = asked[1].copy()
        altered[1][5, 0] = np.nextafter(altered[1][5, 0], 9)
    elif change == "sign of zero":
        altered[1] = asked[1].copy()
        altered[1][0, 0] = -0.0
    elif change == "dtype":
        altered[1] = asked[1].view(np.int64).view(np.dtype(">f8"))
    elif change == "shape":
        altered[1] = asked[1].T.copy().reshape(N, 2)
    else:
        altered[1], altered[2] = asked[2], asked[1]
    assert run(tmp_path / "journal", altered)[1] == (2 if change == "order of passes" else 1)
    # the solve that took another course wrote its own passes over the old ones
    assert run(tmp_path / "journal", altered)[1] == 0


DAMAGES = ("empty", "truncate", "remove", "foreign", "another's record", "zeros", "product changed in a sound archive")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_record_costs_its_own_pass_and_no_other(damage, tmp_path):
    asked = blocks()
    expected, _ = run(tmp_path / "journal", asked)
    record = tmp_path / "journal" / "000002.npz"
    content = record.read_bytes()
    if damage == "empty":
        record.write_bytes(b"")
    elif damage == "truncate":
        record.write_bytes(content[: len(content) // 2])
    elif damage == "remove":
        record.unlink()
    elif damage == "foreign":
        with record.open("wb") as stream:
            np.save(stream, np.arange(3))
    elif damage == "another's record":
        record.write_bytes((tmp_path / "journal" / "000003.npz").read_bytes())
    elif damage == "zeros":
        record.write_bytes(bytes(len(content)))
    else:
        with np.load(record) as archive:
            fields = dict(archive)
        fields["product"][3, 1] += 1
        np.savez(record, **fields)
    found, passes = run(tmp_path / "journal", asked)
    assert passes == 1
    for left, right in zip(expected, found, strict=True):
        np.testing.assert_array_equal(left.product, right.product)
    assert run(tmp_path / "journal", asked)[1] == 0, "the damaged record was not replaced"


def test_no_flipped_bit_changes_what_is_replayed(tmp_path):
    (block,) = blocks(1, width=1)
    (expected,), _ = run(tmp_path / "journal", [block])
    record = tmp_path / "journal" / "000001.npz"
    content = record.read_bytes()
    refused = 0
    # every seventh byte meets all members, their headers and the directory of the archive
    for position in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        record.write_bytes(flipped)
        (found,), passes = run(tmp_path / "journal", [block])
        refused += passes
        np.testing.assert_array_equal(found.product, expected.product)
        np.testing.assert_array_equal(found.row_sums, expected.row_sums)
        assert [getattr(found, name) for name in FACTS] == [getattr(expected, name) for name in FACTS]
    assert refused >= 8 * 2 * N // 7  # product and row sums are all guarded, and more is


def test_record_that_was_cut_off_is_written_over(tmp_path):
    asked = blocks()
    run(tmp_path / "journal", asked[:2])
    orphan = tmp_path / "journal" / "000003.partial"
    orphan.write_bytes(b"half of a record")
    assert run(tmp_path / "journal", asked)[1] == 2
    assert not orphan.exists()


@pytest.mark.parametrize("name", ["000001.npz", "000003.partial", ""])
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_whatever_has_the_name_of_a_record_or_of_the_journal_is_replaced(tmp_path, name, kind):
    asked, place, outside = blocks(), tmp_path / "journal" / name, tmp_path / "outside"
    run(tmp_path / "journal", asked[:2])
    outside.mkdir()
    remove_tree(place)
    if kind == "file":
        place.write_bytes(b"in its place")
    elif kind == "directory":
        (place / "below").mkdir(parents=True)
    else:
        place.symlink_to(outside / "nothing")
    run(tmp_path / "journal", asked)
    assert run(tmp_path / "journal", asked)[1] == 0
    assert not any(outside.iterdir())


def test_full_disk_is_a_storage_error_and_what_was_logged_is_replayed_later(tmp_path, monkeypatch):
    asked = blocks()
    run(tmp_path / "journal", asked[:2])

    def refuse(stream, **arrays):
        stream.write(arrays["product"].tobytes()[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.np, "savez", refuse)
        with pytest.raises(StorageError, match=r"writing pass 3 to .*No space left"):
            run(tmp_path / "journal", asked)
    assert run(tmp_path / "journal", asked)[1] == 2


def rows():
    return np.random.default_rng(3).standard_normal((N, 4))


def solve(gram, journal, solver="arpack"):
    """A solve with what goes before and after it, as an exact fit makes it."""
    # products of blocks may be in float32, as they are for float32 tiles
    operator = CenteredGram(gram, product_dtype="float64" if solver == "arpack" else "float32", journal=journal)
    row_sums = operator.built.row_sums
    if solver == "arpack":
        result = solve_arpack(operator, 5, seed=7)
    else:
        start = np.random.default_rng(7).standard_normal((N, 7))
        result = solve_block_krylov(operator, start, lambda *_: 5, tol=0.0, max_basis=21)
    residuals = operator.matmat(result.eigenvectors) - result.eigenvectors * result.eigenvalues
    return operator, (row_sums, result.eigenvalues, result.eigenvectors, residuals), result.n_passes


def assert_same_bits(left, right):
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


class Killed(BaseException):
    """What no handler of the package catches."""


# a disk makes some forty passes slow: one case is enough there
KILLS = [(home, at, "arpack") for home in ("memory", "recompute") for at in (0, 1, 2, 11, "all but one", "all")]
KILLS += [("zarr", 11, "arpack"), *((home, at, "block_krylov") for home in HOMES for at in (2, 5, "all but one"))]


@pytest.mark.slow
@pytest.mark.parametrize(("home", "finished", "solver"), KILLS)
def test_killed_solve_repeats_no_finished_pass_in_any_home(home, finished, solver, tmp_path, monkeypatch):
    with gram_of(rows(), "rbf", gram=home, tile_rows=TILE_ROWS, workdir=tmp_path / "whole") as gram:
        reference, expected, solver_passes = solve(gram, None, solver)
    total = reference.n_passes
    assert reference.replayed_passes == 0
    finished = {"all but one": total - 1, "all": total}.get(finished, finished)
    # the process ends when a pass has been made and is not logged yet
    write = Journal._write

    def die(self, key, result):
        if self._number > finished:
            raise Killed
        write(self, key, result)

    with (
        monkeypatch.context() as patch,
        gram_of(rows(), "rbf", gram=home, tile_rows=TILE_ROWS, workdir=tmp_path / "killed") as gram,
    ):
        patch.setattr(Journal, "_write", die)
        try:
            solve(gram, Journal(tmp_path / "journal", "solve"), solver)
        except Killed:
            assert finished < total
        else:
            assert finished == total
    with gram_of(rows(), "rbf", gram=home, tile_rows=TILE_ROWS, workdir=tmp_path / "killed") as gram:
        operator, found, resumed_solver_passes = solve(gram, Journal(tmp_path / "journal", "solve"), solver)
    assert operator.replayed_passes == finished
    assert operator.n_passes == total
    assert resumed_solver_passes == solver_passes
    assert_same_bits(found, expected)


def test_tiles_lost_or_damaged_between_two_attempts_are_made_by_the_first_live_pass(tmp_path):
    home = {"gram": "zarr", "tile_rows": TILE_ROWS, "workdir": tmp_path / "tiles"}
    with gram_of(rows(), "rbf", **home) as gram:
        _, expected, _ = solve(gram, Journal(tmp_path / "journal", "solve"))
    for record in sorted((tmp_path / "journal").iterdir())[9:]:
        record.unlink()
    store = tmp_path / "tiles" / "gram.zarr"
    (store / "row_sums" / "c" / "0" / "1" / "0").unlink()
    tile = store / "tiles" / "c" / "1" / "1"
    content = bytearray(tile.read_bytes())
    content[20] ^= 1
    tile.write_bytes(content)
    with gram_of(rows(), "rbf", **home) as gram:
        operator, found, _ = solve(gram, Journal(tmp_path / "journal", "solve"))
    assert operator.replayed_passes == 9
    assert (operator.built.counts.computed, operator.built.counts.repaired) == (2, 1)
    assert_same_bits(found, expected)


def test_tile_damaged_while_a_solve_runs_ends_it_and_the_next_attempt_repairs_it(tmp_path, monkeypatch):
    home = {"gram": "zarr", "tile_rows": TILE_ROWS, "workdir": tmp_path / "tiles"}
    with gram_of(rows(), "rbf", gram="zarr", tile_rows=TILE_ROWS, workdir=tmp_path / "whole") as gram:
        _, expected, _ = solve(gram, None)
    tile = tmp_path / "tiles" / "gram.zarr" / "tiles" / "c" / "0" / "1"
    write = Journal._write

    def write_and_damage(self, key, result):
        write(self, key, result)
        if self._number == 6:
            tile.write_bytes(tile.read_bytes()[:-30])

    with monkeypatch.context() as patch, gram_of(rows(), "rbf", **home) as gram:
        patch.setattr(Journal, "_write", write_and_damage)
        with pytest.raises(CorruptTileError, match=r"tile \(0, 1\)"):
            solve(gram, Journal(tmp_path / "journal", "solve"))
    with gram_of(rows(), "rbf", **home) as gram:
        operator, found, _ = solve(gram, Journal(tmp_path / "journal", "solve"))
    assert operator.replayed_passes == 6
    assert operator.built.counts.repaired == 1
    assert_same_bits(found, expected)


def test_solve_that_takes_another_course_than_its_journal_goes_live_and_is_right(tmp_path, monkeypatch):
    with gram_of(rows(), "rbf", gram="recompute", tile_rows=TILE_ROWS) as gram:
        reference, expected, _ = solve(gram, Journal(tmp_path / "journal", "solve"))
        # as another number of BLAS threads might: from the sixth vector on, every one differs in its last bit
        digest, calls = module.digest_arrays, iter(range(10**6))
        with monkeypatch.context() as patch:
            patch.setattr(
                module,
                "digest_arrays",
                lambda label, *arrays: digest(
                    label, *(np.nextafter(a, 9) if label and a.size and next(calls) >= 4 else a for a in arrays)
                ),
            )
            operator, found, _ = solve(gram, Journal(tmp_path / "journal", "solve"))
    assert operator.replayed_passes == 5  # the building pass has no vectors, and four more
    assert operator.n_passes == reference.n_passes
    assert_same_bits(found, expected)


@pytest.mark.parametrize("home", HOMES)
def test_whole_matrix_can_be_asked_for_after_a_replay_that_touched_no_tile(home, tmp_path):
    options = {"gram": home, "tile_rows": TILE_ROWS, "workdir": tmp_path}
    matrices, passes = [], []
    for _ in range(2):
        with gram_of(rows(), "rbf", **options) as gram:
            operator, _, _ = solve(gram, Journal(tmp_path / "journal", "solve"))
            matrices.append(operator.to_dense())
            passes.append(operator.n_passes)
    np.testing.assert_array_equal(*matrices)
    assert passes[0] == passes[1]


def write_job(folder: Path, **settings) -> Path:
    values = np.random.default_rng(2).normal(size=(2100, 12))
    pq.write_table(pa.table({f"x{column}": values[:, column] for column in range(12)}), folder / "rows.parquet")
    config = {
        "source": {"uri": "rows.parquet"},
        "kernel": {"name": "rbf"},
        "n_components": 6,
        "dtype": "float64",
        "output": {"path": "out"},
        **settings,
    }
    (folder / "job.yaml").write_text(json.dumps(config))
    return folder / "job.yaml"


def command(job: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "scalable_kpca.cli", "run", str(job), *overrides, "--json"]


def outcome(job: Path, *overrides: str) -> tuple[dict, tuple[str, bytes]]:
    finished = subprocess.run(command(job, *overrides), capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    made = Path(json.loads(finished.stdout.splitlines()[-1])["run"])
    assert not (made / "journal").exists()
    bits = (made / "metrics.json").read_text(), (made / "embedding" / "part-00000.parquet").read_bytes()
    return json.loads((made / "run.json").read_text()), bits


def kill_after(job: Path, n_passes: int) -> int:
    """Start a run, kill it when so many passes are logged; how many were when it died."""
    records = "out/runs/*/journal/*.npz"
    process = subprocess.Popen(command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(matching(job.parent, records)) < n_passes and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the solve ended before it could be killed"
    return len(matching(job.parent, records))


# few vectors a pass and many passes; many vectors, few passes of many small tasks, so that a kill falls inside them
SOLVERS = {
    "arpack": {"solver": {"name": "arpack"}, "tile_rows": 420},
    "block_krylov": {"solver": {"name": "block_krylov", "tol": 1e-10}, "tile_rows": 100},
}


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("gram", ["recompute", "zarr", "memory"])
def test_killed_run_repeats_no_finished_pass_and_gives_the_same_bits(gram, solver, tmp_path):
    job = write_job(tmp_path, gram=gram, **SOLVERS[solver])
    reference, expected = outcome(job, "--set", "output.path=reference")
    assert reference["resumed_passes"] == 0
    # killed once, and once more while it goes on
    first, second = (3, 9) if solver == "arpack" else (2, 4)
    logged = [kill_after(job, wanted) for wanted in (first, second)]
    assert first <= logged[0] < second <= logged[1]
    said = CliRunner().invoke(skpca, ["status", str(tmp_path / "out")]).output
    assert f"{logged[1]} finished passes" in said, said
    resumed, bits = outcome(job)
    assert resumed["resumed_passes"] == logged[1]
    assert resumed["n_passes"] == reference["n_passes"] > resumed["resumed_passes"]
    assert bits == expected


@pytest.mark.slow
def test_run_whose_tiles_were_lost_as_well_makes_them_and_repeats_no_finished_pass(tmp_path):
    job = write_job(tmp_path, gram="zarr", **SOLVERS["block_krylov"])
    _, expected = outcome(job, "--set", "output.path=reference")
    logged = kill_after(job, 2)
    (store,) = tmp_path.glob("out/runs/*/gram.zarr")
    (store / "row_sums" / "c" / "2" / "5" / "0").unlink()
    again, bits = outcome(job)
    assert again["resumed_passes"] == logged
    assert again["tiles"]["computed"] == 1
    assert bits == expected
