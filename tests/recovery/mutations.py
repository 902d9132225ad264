"""Switches each protection off in a copy of the project, and shows that a test misses it.

``python -m tests.recovery.mutations`` says which.

A guard that can be taken away without a red test is not guarded itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MUTATIONS", "Mutation", "outcome"]

ROOT = Path(__file__).parents[2]
PARTS = ("scalable_kpca", "tests", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Mutation:
    """A protection, and what takes it away.

    Attributes
    ----------
    file, before, after : str
        Text of a module that is there once, and what stands in its place.
    tests : tuple of str
        Of which at least one must fail then; all pass without.
    """

    file: str
    before: str
    after: str
    tests: tuple[str, ...]


PUBLISHING = "tests/test_publishing.py::test_"
STORE = "tests/recovery/test_gram_store.py"
LOCK = "tests/test_lock.py"

MUTATIONS = {
    "the checksum of a tile": Mutation(
        "gram/chunks.py",
        "if checksum != int.from_bytes(stored_checksum.tobytes(), ",
        "if 0 == int.from_bytes(stored_checksum.tobytes(), ",
        (STORE,),
    ),
    "the sums of a tile": Mutation("gram/store.py", "if not difference <= tolerance:", "if False:", (STORE,)),
    "the lock": Mutation("workflow/lock.py", "        if not owner_is_dead(owner):", "        if False:", (LOCK,)),
    "that the lock is still held": Mutation(
        "workflow/lock.py",
        "        if not self._is_held():\n            raise",
        "        if False:\n            raise",
        (PUBLISHING + "a_writer_whose_lock_was_taken_away_publishes_nothing",),
    ),
    "the number of the writer": Mutation(
        "workflow/publishing.py",
        "if published >= self.fence:",
        "if False:",
        (PUBLISHING + "a_writer_that_slept_while_another_published_is_refused_by_its_number",),
    ),
    "the commit list": Mutation(
        "workflow/layout.py",
        "                elif file_digest(file) != digest:",
        "                elif False:",
        ("tests/test_workflow.py::test_flipped_bit_in_a_result_is_found_and_repaired_with_exit_code_0",),
    ),
    "the flush before the commit": Mutation(
        "workflow/layout.py",
        "                sync_tree(result)\n",
        "",
        (PUBLISHING + "results_reach_the_disk_before_their_list_and_the_list_before_the_pointer",),
    ),
    "the flush of what is listed": Mutation(
        "workflow/files.py",
        "            os.fsync(stream.fileno())\n",
        "",
        (PUBLISHING + "results_reach_the_disk_before_their_list_and_the_list_before_the_pointer",),
    ),
    "the contents of the input": Mutation(
        "workflow/identity.py",
        '        "source": source_digest,\n',
        "",
        (PUBLISHING + "an_input_that_changed_in_place_with_its_size_and_its_times_is_another_input",),
    ),
    "that the input has not changed": Mutation(
        "workflow/work.py",
        "    if not unchanged:\n",
        "    if False:\n",
        (PUBLISHING + "an_input_that_changes_during_a_run_is_named_and_nothing_is_published",),
    ),
    "that tiles are of these rows": Mutation(
        "workflow/inspect.py",
        "        if not difference <= 2 * error * largest:",
        "        if False:",
        (PUBLISHING + "verification_evaluates_tiles_again_and_names_one_that_is_not_of_these_rows",),
    ),
}


def outcome(mutation: Mutation) -> str:
    """What the tests of a mutation say in a copy that has it: ``"red"``, ``"green"``, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, Path(folder, part))
        if mutation.before:
            place = Path(folder, "scalable_kpca", mutation.file)
            text = place.read_text()
            if text.count(mutation.before) != 1:
                return f"{mutation.file} has {mutation.before!r} {text.count(mutation.before)} times, once is needed"
            place.write_text(text.replace(mutation.before, mutation.after))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider", *mutation.tests]
        finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        verdict = {0: "green", 1: "red"}.get(finished.returncode)
        return verdict or f"pytest ended with {finished.returncode}: {finished.stdout[-1000:]}"


def main() -> None:
    """Print one line for each protection; exit code 1 when one of them is not missed."""
    verdicts = {name: outcome(mutation) for name, mutation in MUTATIONS.items()}
    for name, verdict in verdicts.items():
        print(f"without {name}: {verdict}")  # noqa: T201
    sys.exit(set(verdicts.values()) != {"red"})


if __name__ == "__main__":
    main()
