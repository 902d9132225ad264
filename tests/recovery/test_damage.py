"""Damage to any file below an output ends in a named error or in exact repair, never in wrong numbers."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca.model import load_model
from tests.recovery.damage import DAMAGES, damages_of, flip, swap
from tests.recovery.damaged import Damaged, contents, finished_run, remove, runs_of, updated_run
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job
from tests.recovery.zygote import Zygote

# every k-th damage here, every one by SKPCA_TEST_DAMAGE_EVERY=1
EVERY = int(os.environ.get("SKPCA_TEST_DAMAGE_EVERY", "79"))

UPDATED = "Nyström, updated twice"
# where the last command is killed: before the first change of a file whose path has this text; None: it is not
POINTS = {
    "stored tiles, block Krylov": (
        *("/labels/.KEY.json", "/row_sums/c/1/1/0", "/journal/000002", "/.metrics.json", "/.latest.json", None),
    ),
    "tiles in memory, ARPACK": ("/journal/000005", "/.run.json", "/.latest.json", None),
    "tiles evaluated again, power": ("/journal/000002", None),
    "stored tiles, LAPACK": ("/.COMMIT.json", None),
    "Nyström": ("/journal/sums", "/.metrics.json", "/.latest.json", None),
    "Nyström, refined": ("/journal/000002", None),
    UPDATED: ("/contributions/", "/.ledger.json", "/.latest.json", None),
}
STATES = [(name, point) for name, points in POINTS.items() for point in points]
EVERY_BIT = ("stored tiles, block Krylov", "Nyström")  # descriptions of others are of the same kinds

SMALL = {"gram": "zarr", "solver": {"name": "dense"}, "tile_rows": 16}  # six tiles, the last ones of 8 rows


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    with Zygote(tmp_path_factory.mktemp("zygote")) as process:
        yield process


@pytest.fixture(scope="module")
def jobs(zygote, tmp_path_factory):
    """Two jobs of a name, on other rows, that are made once."""
    made: dict[str, list[Damaged]] = {}

    def of(name: str) -> list[Damaged]:
        if name not in made:
            folders = [tmp_path_factory.mktemp("job") for _ in range(2)]
            made[name] = [
                updated_run(zygote, folder, seed) if name == UPDATED else finished_run(zygote, folder, seed, JOBS[name])
                for seed, folder in enumerate(folders)
            ]
        return made[name]

    return of


@pytest.mark.slow
@pytest.mark.timeout(300 if EVERY > 1 else 6 * 3600)
@pytest.mark.parametrize(("name", "point"), STATES)
def test_no_damage_to_an_output_is_ever_an_answer(jobs, name, point):
    made, another = jobs(name)
    for each in (made, another):
        each.prepare(point)
    made.put_beside(another.state)
    bits = 1 if name in EVERY_BIT and point is None else 8
    damages = list(damages_of(made.state, made.another, EVERY, bits=bits))
    found = [problem for damage in damages for problem in made.problems(damage)]
    print(f"{len(damages)} damages")  # noqa: T201
    if found:
        pytest.fail("\n".join(found), pytrace=False)


# ---------------------------------------------------------------- what has been found that way


def edit(file: Path, pattern: str, text: str) -> None:
    """Replace the only match of a pattern."""
    changed, count = re.subn(pattern, text, file.read_text())
    assert count == 1
    file.write_text(changed)


def test_a_model_with_another_parameter_scores_nothing(zygote, tmp_path):
    made = finished_run(zygote, tmp_path, 0, SMALL)
    made.finished.rename(made.output)
    model = latest_run(made.output) / "model" / "model.json"
    edit(model, r'"gamma": 0\.\d', '"gamma": 0.7')  # a digit has at most four bits
    ended = made.command("transform", str(made.output), "--source", str(tmp_path / "new"), "--to", str(tmp_path / "to"))
    assert ended.code == 74
    assert f"{model} differs from what was committed; `skpca run`" in ended.errors
    assert not (tmp_path / "to").exists()


def swap_blocks(run: Path) -> None:
    swap(run / "rows.zarr" / "c" / "0" / "0", run / "rows.zarr" / "c" / "1" / "0")


def change_variance(run: Path) -> None:
    edit(run / "rows.zarr" / "zarr.json", r'"variance": "(\d)\.\d', r'"variance": "\1.5')


@pytest.mark.parametrize("damage", [swap_blocks, change_variance])
def test_rows_that_are_not_what_was_copied_are_copied_again(zygote, tmp_path, damage):
    made = finished_run(zygote, tmp_path, 0, SMALL)
    made.prepare("/row_sums/c/1/1/0")
    made.state.rename(made.output)
    run = made.output / "runs" / made.final
    damage(run)  # each chunk has its right checksum all the same
    ended = made.command(*made.commands[0])
    assert ended.code == 0
    assert "rows.zarr" in ended.errors
    assert bits_of(run) == made.results[made.final]


def test_a_directory_in_the_place_of_a_file_is_replaced(zygote, tmp_path):
    made = finished_run(zygote, tmp_path, 0, SMALL)
    made.finished.rename(made.output)
    run = latest_run(made.output)
    for place in (made.output / "latest.json", run / "COMMIT.json", run / "plan.json", run / "run.json"):
        remove(place)
        (place / "below").mkdir(parents=True)
    assert made.command(*made.commands[0]).code == 0
    assert bits_of(latest_run(made.output)) == made.results[made.final]
    assert made.command(*made.commands[0]).code == 99


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 1])
def test_scores_of_earlier_versions_are_verified_and_made_again(zygote, tmp_path, version):
    made = updated_run(zygote, tmp_path, 0)
    made.finished.rename(made.output)
    part = runs_of(made.output)[version] / "embedding" / "part-00000.parquet"
    flip(0.5)(part)
    verified = made.command("verify", str(made.output))
    assert verified.code == 74
    assert f"{part} differs from what was committed" in verified.output
    assert [made.command(*command).code for command in made.commands] == [0, 0, 0]
    assert {run.name: bits_of(run) for run in runs_of(made.output)} == made.results
    assert made.command("verify", str(made.output)).code == 0
    assert [made.command(*command).code for command in made.commands] == [99, 99, 99]


@pytest.mark.slow
def test_sums_that_an_unfinished_update_has_taken_over_are_taken_over_again(zygote, tmp_path):
    made = updated_run(zygote, tmp_path, 0)
    made.prepare("/.ledger.json")
    made.state.rename(made.output)
    earlier, unfinished = runs_of(made.output)[1:]
    taken = next((earlier / "contributions").iterdir())
    copy = unfinished / "contributions" / taken.name
    copy.unlink()
    copy.write_bytes(b"damaged")
    assert made.command(*made.commands[-1]).code == 0
    assert bits_of(unfinished) == made.results[made.final]


@pytest.mark.slow
@pytest.mark.parametrize("at", [None, 10])  # at the end; in the date of a member, which nobody reads
def test_sums_of_an_unfinished_update_are_published_as_they_were_written(zygote, tmp_path, at):
    made = updated_run(zygote, tmp_path, 0)
    made.prepare("/.latest.json")
    made.state.rename(made.output)
    *_, earlier, unfinished = runs_of(made.output)
    (own,) = {path.name for path in (unfinished / "contributions").iterdir()} - {
        path.name for path in (earlier / "contributions").iterdir()
    }
    file = unfinished / "contributions" / own
    written = file.read_bytes()
    file.unlink()
    file.write_bytes(written + b"extended" if at is None else written[:at] + b"?" + written[at + 1 :])
    assert made.command(*made.commands[-1]).code == 0
    assert file.read_bytes() == written
    assert bits_of(unfinished) == made.results[made.final]


# ---------------------------------------------------------------- tiles


def tile_file(run: Path, i: int, j: int) -> Path:
    return run / "gram.zarr" / "tiles" / "c" / str(i) / str(j)


def committed(run: Path) -> set[tuple[int, int]]:
    """Tiles whose row sums are there."""
    chunks = (run / "gram.zarr" / "row_sums" / "c").glob("*/*/0")
    return {at for at in ((int(chunk.parts[-3]), int(chunk.parts[-2])) for chunk in chunks) if at[0] <= at[1]}


def tiles_of(run: Path) -> dict[str, int]:
    """Tiles computed, read and repaired by the pass that built."""
    return json.loads((run / "run.json").read_text())["tiles"]


@pytest.mark.parametrize(
    "kind",
    [
        "middle byte flipped",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("zeroed", "truncated", "a directory")),
    ],
)
def test_a_damaged_tile_is_made_again_by_the_run_that_needs_it_and_no_other(zygote, tmp_path, kind):
    job, output = write_job(tmp_path, SMALL), tmp_path / "out"
    assert zygote.run("run", str(job)).code == 0
    DAMAGES[kind](tile_file(latest_run(output), 0, 1), tmp_path, tmp_path)
    before = contents(output)
    assert zygote.run("run", str(job)).code == 99
    assert contents(output) == before

    assert zygote.run("run", str(job), "--set", "n_components=2").code == 0
    run = latest_run(output)
    assert tiles_of(run) == {"computed": 1, "read": 5, "repaired": 1}
    aside = {name.rpartition("tile-0-1")[2]: data for name, data in contents(run / "damaged").items()}
    name = next(name for name in before if name.endswith("tiles/c/0/1"))
    assert aside[""] == before[name]
    assert zygote.run("run", str(job), "--set", "n_components=2", "--set", "output.path=fresh").code == 0
    assert bits_of(run) == bits_of(latest_run(tmp_path / "fresh"))


@pytest.mark.parametrize("killed", ["/row_sums/c/1/2/0", "/journal/000001"])
def test_damaged_and_swapped_tiles_of_a_killed_run_are_counted_as_repaired(zygote, tmp_path, killed):
    job, output = write_job(tmp_path, SMALL), tmp_path / "out"
    assert zygote.run("run", str(job)).code == 0
    reference = bits_of(latest_run(output))
    shutil.rmtree(output)
    assert zygote.run("run", str(job), watched=output, kill_on=killed).code == -9
    run = next((output / "runs").iterdir())
    kept = committed(run)
    spoiled = sorted(kept)[-3:]
    assert len(kept) == 6 or 3 <= len(kept) < 6
    flip(0.5)(tile_file(run, *spoiled[0]))
    swap(*(tile_file(run, *at) for at in spoiled[1:]))
    assert zygote.run("run", str(job)).code == 0
    assert tiles_of(run) == {"computed": 6 - len(kept) + 3, "read": len(kept) - 3, "repaired": 3}
    assert {path.name for path in (run / "damaged").iterdir()} == {f"tile-{i}-{j}" for i, j in spoiled}
    assert bits_of(run) == reference
    assert leftovers(output) == []


def test_tiles_of_zeros_survive_a_kill_and_a_run_with_more_components(zygote, tmp_path):
    rows = np.zeros((40, 3))
    for column, block in enumerate((slice(0, 16), slice(16, 32), slice(32, 40))):  # each orthogonal to the others
        rows[block, column] = np.random.default_rng(column).normal(size=rows[block, column].size)
    (tmp_path / "rows").mkdir()
    columns = {"id": np.arange(40)} | {f"x{column}": rows[:, column] for column in range(3)}
    pq.write_table(pa.table(columns), tmp_path / "rows" / "part-0.parquet")
    job = write_job(tmp_path, SMALL, source={"uri": "rows/part-0.parquet", "id": "id"}, kernel={"name": "linear"})
    output, fewer = tmp_path / "out", ("--set", "n_components=2")

    assert zygote.run("run", str(job), *fewer, watched=output, kill_on="/row_sums/c/1/2/0").code == -9
    kept = len(committed(next((output / "runs").iterdir())))
    assert zygote.run("run", str(job), *fewer).code == 0
    assert tiles_of(latest_run(output)) == {"computed": 6 - kept, "read": kept, "repaired": 0}
    for at in ((0, 1), (0, 2), (1, 2)):
        tile = np.frombuffer(tile_file(latest_run(output), *at).read_bytes()[:-4], "float64").reshape(16, 16)
        assert not tile[:, : 8 if at[1] == 2 else 16].any()
    assert zygote.run("run", str(job)).code == 0
    run = latest_run(output)
    assert tiles_of(run) == {"computed": 0, "read": 6, "repaired": 0}
    assert zygote.run("run", str(job), "--set", "output.path=fresh").code == 0
    assert bits_of(run) == bits_of(latest_run(tmp_path / "fresh"))
    centred = rows - rows.mean(axis=0)
    expected = np.linalg.eigvalsh(centred.T @ centred)[::-1]
    # 3 × 3 and 40 × 40 matrices of one spectrum: rounding of n terms
    np.testing.assert_allclose(load_model(run / "model").eigenvalues, expected, rtol=40 * 2**-52)
    assert zygote.run("verify", str(output)).code == 0
