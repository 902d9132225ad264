"""What several tests of clusters need."""

from pathlib import Path

import pytest


@pytest.fixture
def other_libraries(tmp_path):
    """Environment in which the package has another version."""
    other = tmp_path / "other" / "scalable_kpca-0.0.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: scalable-kpca\nVersion: 0.0.9\n")
    return {"PYTHONPATH": f"{other.parent}:{Path(__file__).parents[2]}"}
