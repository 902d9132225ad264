"""The README's Python runs as it stands there, block after block."""

import re
from pathlib import Path

import numpy as np

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
