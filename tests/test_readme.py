"""The README's Python runs as it stands there, block after block."""

import re
from pathlib import Path

import numpy as np

from scalable_kpca import plan

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    np.testing.assert_allclose(names["new_scores"], names["scores"][:3], atol=1e-5)
    assert names["denoised"].shape == (5, 20)
    assert names["novel"].dtype == bool
    assert "leaves no room for another eigenvalue" in capsys.readouterr().out


def test_the_limits_of_the_readme_fit_and_auto_takes_landmarks_for_a_million_rows():
    text = " ".join(README.read_text().split())
    found = re.search(r"fit limits of ([0-9.]+) and ([0-9.]+) GB", text)
    for n_samples, limit in zip((100_000, 1_000_000), found.groups(), strict=True):
        assert plan(n_samples, 64, memory_limit=f"{limit}GB", n_jobs=2).method == "exact"
    assert plan(1_000_000, 64, n_jobs=2, method="auto", calibrate="never").method == "nystroem"
