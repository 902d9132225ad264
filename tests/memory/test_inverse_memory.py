"""Memory of a job with a map from scores to rows and scores in zarr: the smallest limit that is named is kept to."""

import json
import subprocess
import sys

import numpy as np
import pytest

from scalable_kpca.errors import MemoryLimitError
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.stages import outline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUN = """
import sys
from pathlib import Path
from scalable_kpca.cli import skpca
try:
    skpca(sys.argv[1:])
finally:
    print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024)
"""


@pytest.mark.parametrize(
    ("method", "n", "d", "m"),
    [
        ("exact", 2000, 3000, 1000),
        ("exact", 6000, 20, 1000),
        ("nystroem", 20_000, 2000, 1500),
        ("nystroem", 300_000, 20, 2000),
    ],
)
def test_a_job_with_a_map_keeps_to_the_smallest_limit_that_is_named(tmp_path, method, n, d, m):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((n, d), dtype="float32"))
    fields = {
        "source": {"uri": "rows.npy"},
        "method": method,
        "n_components": 5,
        "nystroem": {"n_landmarks": m},
        "inverse": True,
        "novelty": True,
        "output": {"path": "out", "format": "zarr"},
        "cluster": {"kind": "threads", "n_threads": 2},
        "budget": {"memory": "245MiB"},
    }
    with pytest.raises(MemoryLimitError) as refused:
        outline(Config.model_validate(fields), tmp_path)
    limit = refused.value.needed
    (tmp_path / "job.yaml").write_text(json.dumps(fields | {"budget": {"memory": limit}}))
    asked = [sys.executable, "-c", RUN, "run", str(tmp_path / "job.yaml"), "--json"]
    finished = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout.splitlines()[-1]) <= limit
