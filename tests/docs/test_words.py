"""Names are written as the glossary has them, in every document."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# what is not written, outside of code: and how it is
SPELLINGS = {
    r"\bNystrom\b": "Nyström",
    r"\b(scikit learn|Scikit-[Ll]earn|sklearn)\b": "scikit-learn",
    r"\bNumPy\b": "numpy",
    r"\bSciPy\b": "scipy",
    r"\bZarr\b": "zarr",
    r"\bDASK\b": "Dask",
    r"\b[Kk]ernel-PCA\b": "kernel PCA",
    r"\bK-?PCA\b": "kernel PCA",
    r"\bpreimages?\b": "pre-image",
    r"\b[Ee]igen(-| )(value|vector|pair)s?\b": "eigenvalue, eigenvector, eigenpair",
    r"\bcenter(ed|ing)?\b": "centre, centred, centring",
    r"\bcolor(s|ed|ing)?\b": "colour",
    r"\bbehavior\b": "behaviour",
    r"\b[Dd]ata [Ff]rames?\b": "dataframe",
}
FILES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "cluster" / "README.md"]
FILES += sorted(path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "auto_gallery"} & set(path.parts))
CODE = re.compile(r"^```.*?^```$|^::::?.*?$|`[^`\n]+`|\$[^$\n]+\$|\]\([^)\n]+\)|<[^>\n]+>", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_are_written_as_in_the_glossary(path):
    prose = CODE.sub(" ", path.read_text())
    wrong = [
        f"{found.group()!r} is written {right}"
        for pattern, right in SPELLINGS.items()
        for found in re.finditer(pattern, prose)
    ]
    assert wrong == []


def test_every_document_is_looked_at():
    listed = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    known = {str(path.relative_to(ROOT)) for path in FILES}
    assert {line for line in listed.split() if line.endswith(".md")} <= known
    assert len(FILES) > 40
