"""The tutorial, followed word for word: its commands, its Python, and the numbers that it shows."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCKS = re.findall(r"^```(console|python|yaml|text)\n(.*?)^```$", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def run(command, exit_code, cwd):
    """A command as a shell would start it; the program is that of this interpreter."""
    name, *arguments = shlex.split(command)
    assert name == "skpca"
    started = [sys.executable, "-m", "scalable_kpca.cli", *arguments]
    finished = subprocess.run(started, cwd=cwd, capture_output=True, text=True, check=False)
    assert finished.returncode == exit_code, finished.stderr
    return finished.stdout + finished.stderr


def same_numbers(shown, printed):
    """Whether numbers agree in the digits that are shown."""
    pairs = list(zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True))
    return bool(pairs) and all(
        abs(float(there) - float(found)) <= 0.5001 * 10.0 ** -len(there.partition(".")[2]) for there, found in pairs
    )


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path, monkeypatch):
    ignored = shutil.ignore_patterns("out", "__pycache__")
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines", ignore=ignored)
    monkeypatch.chdir(tmp_path)
    names, said, kinds = {}, "", set()
    for kind, block in BLOCKS:
        kinds.add(kind)
        if kind == "console":
            for line in block.splitlines():
                command, _, remark = line.removeprefix("$ ").partition("  # ")
                if not command.startswith("pip "):
                    said += run(command, int(remark.removeprefix("exit code ") or 0), tmp_path)
        elif kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, str(TUTORIAL), "exec"), names)
            calls = [line for line in block.splitlines() if line.startswith("print(")]
            for call, line in zip(calls, printed.getvalue().splitlines(), strict=True):
                shown = call.partition("  # ")[2]
                assert not shown or shown == line or same_numbers(shown, line), f"{call} has printed {line}"
        elif kind == "yaml":
            assert yaml.safe_load(block) == yaml.safe_load((ROOT / "pipelines" / "digits.yaml").read_text())
        else:
            # the last digits of residuals are the processor's
            assert [re.sub(r"≤ \S+", "", line) for line in block.splitlines()] == [
                re.sub(r"≤ \S+", "", line)
                for line in said.splitlines()
                if line.split(" ")[0] in ("exact", "eigenvalues", "residual")
            ]
    assert kinds == {"console", "python", "yaml", "text"}
    assert (tmp_path / "pipelines" / "out" / "digits" / "report.html").stat().st_size > 100_000
    assert (tmp_path / "pipelines" / "out" / "new" / "_health.json").exists()


def test_what_is_not_printed_is_no_number():
    assert same_numbers("0.626", "0.6259665680191366")
    assert not same_numbers("0.627", "0.6259665680191366")
    assert not same_numbers("done", "done")
