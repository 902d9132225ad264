"""A subject that is killed on the way: `skpca run` on files, ended by SIGKILL within its second pass, and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.child import peak_of, stopwatch
from tests.benchmarks.manifold import GAMMA
from tests.benchmarks.streams import wrong_ids

__all__ = ["exact_run"]

CONFIG = """
source: {{uri: {files}/*.parquet, id: [id]}}
kernel: {{name: rbf, gamma: {gamma}}}
method: exact
n_components: {k}
gram: recompute
solver: {{name: block_krylov}}
dtype: float32
budget: {{memory: {memory}}}
output: {{path: {output}}}
"""
COMMAND = (sys.executable, "-m", "scalable_kpca.cli", "run", "job.yaml", "--json")
FIRST_PASS = "runs/*/journal/000001.npz"  # is there once the first pass is finished
SHARE = 0.15  # of the time until then is what the second pass runs on before the kill


def exact_run(n: int, k: int, files: str, memory: str, output: str) -> dict[str, Any]:
    """An exact job of n rows that is killed within its second pass and given again, with what its run.json says.

    Peaks are those of both processes; `seconds` is theirs together. A job that ended before its kill came (rows for a
    test) says so: `killed_after` is then None.
    """
    folder = Path(output).parent
    config = CONFIG.format(files=files, gamma=GAMMA, k=k, memory=memory, output=output)
    (folder / "job.yaml").write_text(config, encoding="utf-8")
    with stopwatch() as watch:
        killed_after, first_peak = _killed(folder, Path(output))
        second_peak = 0 if killed_after is None else peak_of(_start(folder), folder / "stderr")
    answer = json.loads((folder / "stdout").read_text(encoding="utf-8").splitlines()[-1])
    run = json.loads(Path(answer["run"], "run.json").read_text(encoding="utf-8"))
    metrics = json.loads(Path(answer["run"], "metrics.json").read_text(encoding="utf-8"))
    return {
        "seconds": watch.seconds,
        "peak_memory": max(first_peak, second_peak),
        "killed_after": killed_after,
        "seconds_of_second_process": run["seconds"],
        "wrong_ids": wrong_ids(Path(answer["embedding"]), n),
        "complete": answer["complete"],
        "explained_variance": answer["explained_variance"],
        "eigenvalues": metrics["eigenvalues"],
        "residuals": metrics["certificate"]["residual_norms"],
        "run": {
            name: run[name] for name in ("plan", "tiles", "n_passes", "resumed_passes", "residuals_by_pass", "versions")
        },
    }


def _killed(folder: Path, output: Path) -> tuple[float | None, int]:
    """Seconds until the kill, None where the job was faster, and the peak of the process in bytes."""
    start, first_pass = time.monotonic(), None
    process = _start(folder)
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        now = time.monotonic() - start
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode not in (0, -signal.SIGKILL):
                raise RuntimeError((folder / "stderr").read_text(encoding="utf-8"))
            return (now if process.returncode else None), usage.ru_maxrss * 1024
        if first_pass is None and any(output.glob(FIRST_PASS)):
            first_pass = now
        if first_pass is not None and now > first_pass * (1 + SHARE):
            process.kill()
        time.sleep(0.01)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "stdout").open("wb") as said, (folder / "stderr").open("ab") as told:
        return subprocess.Popen(COMMAND, cwd=folder, stdout=said, stderr=told)
