"""A command in a process of its own is one result or one of two named errors, and never left behind."""

import json
import os
import pickle
import subprocess
import sys
import time

import pytest

from scalable_kpca.commands import CommandResult, run_skpca
from scalable_kpca.errors import CommandError, KernelPCAError, RetryableError


def program(source):
    """Whatever Python does, in the place of skpca."""
    return [sys.executable, "-c", f"import json, os, signal, sys, time\n{source}"]


def ends_with(code, words="Error: of that day"):
    return program(f"sys.stderr.write('plan\\n{words}\\n'); print(json.dumps({{'status': 'done'}})); sys.exit({code})")


def test_only_the_standard_library_is_imported():
    heavy = "{'numpy', 'dask', 'click', 'pydantic', 'yaml', 'psutil'}"
    text = f"import sys, scalable_kpca.commands; sys.exit(str(sorted({heavy} & set(sys.modules))))"
    finished = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert finished.stderr.strip() == "[]"


def test_the_real_command_is_started_where_none_is_named():
    with pytest.raises(CommandError, match=r"^skpca run exited with 2: Missing argument 'CONFIG'\.$") as caught:
        run_skpca("run")
    assert caught.value.exit_code == 2


def test_the_last_line_is_the_answer_and_a_run_is_relative_to_where_the_command_ran(tmp_path):
    source = "print('{\"status\": 0}'); print(json.dumps({'status': 'restored', 'run': 'out', 'args': sys.argv[1:]}))"
    result = run_skpca("update", tmp_path, command=program(source), cwd=tmp_path)
    answer = {"status": "restored", "run": "out", "args": ["update", str(tmp_path), "--json"]}
    assert result == CommandResult("restored", 0, answer, tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "metrics.json").write_text('{"n_samples": 3}')
    assert (result.read("metrics.json"), result.read("run.json")) == ({"n_samples": 3}, {})


def test_nothing_to_do_is_a_result_whatever_the_answer_says():
    result = run_skpca("unlock", command=ends_with(99))
    assert (result.status, result.exit_code) == ("unchanged", 99)
    assert (result.run, result.read("metrics.json")) == (None, {})


@pytest.mark.parametrize("code", [69, 74, 75, 137])
def test_what_may_succeed_later_is_retryable(code):
    with pytest.raises(RetryableError) as caught:
        run_skpca("run", command=ends_with(code))
    assert caught.value.exit_code == code


@pytest.mark.parametrize("code", [1, 2, 65, 70, 78, 127])
def test_what_would_fail_again_is_not(code):
    with pytest.raises(CommandError, match=f"^skpca run exited with {code}: of that day$") as caught:
        run_skpca("run", command=ends_with(code))
    assert caught.value.exit_code == code


def test_a_command_that_was_killed_is_retryable_and_the_signal_is_named():
    with pytest.raises(RetryableError, match="skpca run was killed by SIGKILL: it said nothing") as caught:
        run_skpca("run", command=program("os.kill(os.getpid(), signal.SIGKILL)"))
    assert caught.value.exit_code == -9


def test_errors_travel_between_processes():
    for kind in (CommandError, RetryableError):
        again = pickle.loads(pickle.dumps(kind("text", 69)))
        assert (type(again), str(again), again.exit_code) == (kind, "text", 69)
        assert isinstance(again, KernelPCAError)


@pytest.mark.parametrize("printed", ["", "not JSON", "[1]"])
def test_what_is_no_answer_is_an_error(printed):
    with pytest.raises(CommandError, match="no JSON object"):
        run_skpca("run", command=program(f"print({printed!r}, end='')"))


def test_a_command_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CommandError, match="no-such-program cannot be started: No such file") as caught:
        run_skpca("run", command=["no-such-program"])
    assert caught.value.exit_code == 78
    with pytest.raises(CommandError, match="nowhere"):
        run_skpca("run", cwd=tmp_path / "nowhere")


def test_lines_are_heard_as_they_come_and_a_long_answer_does_not_stop_it():
    heard = []
    source = "print(json.dumps({'drift': 'x' * 10**6}))\nfor n in range(100): print(n, file=sys.stderr)"
    result = run_skpca("run", command=program(source), listener=heard.append)
    assert heard == [str(n) for n in range(100)]
    assert len(result.answer["drift"]) == 10**6


def test_a_caller_that_is_interrupted_tells_the_command_to_stop_and_waits_for_it(tmp_path):
    source = f"""
def told(*_):
    time.sleep(0.2)
    open({str(tmp_path / "told")!r}, 'w').close()
    sys.exit(75)
signal.signal(signal.SIGTERM, told)
print(os.getpid(), file=sys.stderr, flush=True)
time.sleep(60)
"""
    pids = []

    def cancelled(line):
        pids.append(int(line))
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_skpca("run", command=program(source), listener=cancelled)
    assert time.monotonic() - began < 30
    assert (tmp_path / "told").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_command_that_does_not_hear_is_ended(monkeypatch):
    monkeypatch.setattr("scalable_kpca.commands.GRACE_SECONDS", 0.2)
    pids = []

    def cancelled(line):
        pids.append(int(line))
        raise KeyboardInterrupt

    source = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid(), file=sys.stderr, flush=True)"
    with pytest.raises(KeyboardInterrupt):
        run_skpca("run", command=program(f"{source}\ntime.sleep(60)"), listener=cancelled)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_variables_of_the_environment_reach_the_command(monkeypatch):
    monkeypatch.setenv("SKPCA_KERNEL__GAMMA", "0.5")
    result = run_skpca("run", command=program("print(json.dumps(dict(os.environ)))"))
    assert json.loads(result.answer["SKPCA_KERNEL__GAMMA"]) == 0.5
