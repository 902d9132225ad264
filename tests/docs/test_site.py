"""The documents build without a network and without a warning; nothing in them is missing or comes from elsewhere."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support import skip

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# what a browser asks for by itself; links are what a reader may follow
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "src"), ("iframe", "src"), ("use", "href")}
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author", "copyright"}  # <link rel=…>


class Page(HTMLParser):
    """Names that can be pointed at, what is pointed at, and what is loaded."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.loaded, self.images = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "img":
            self.images.append(found)
        for name in ("src", "href"):
            if (tag, name) in LOADED and found.get(name) and found.get("rel") not in NOT_LOADED:
                self.loaded.append(found[name])


def built(target):
    """Build everything, gallery and all, where no network can be reached."""
    if importlib.util.find_spec("sphinx") is None:
        skip("sphinx is not installed")
    alone = ["unshare", "--net"] if os.geteuid() == 0 and shutil.which("unshare") else []
    command = [
        *alone,
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-b",
        "html",
        str(DOCS),
        str(target),
    ]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(target.rglob("*.html"))}


def broken(pages):
    """Links that lead nowhere, as (page, link)."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].names if target in pages else None
            if not target.exists() or (parts.fragment and known is not None and unquote(parts.fragment) not in known):
                yield path.name, link


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_documents_build_offline_and_nothing_in_them_is_missing(tmp_path, monkeypatch):
    target = (tmp_path / "html").resolve()
    pages = built(target)
    assert len(pages) > 60
    assert list(broken(pages)) == []
    elsewhere = {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc}
    assert elsewhere == set()
    for sheet in target.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name
    for path, page in pages.items():
        for image in page.images:
            assert (path.parent / unquote(image["src"])).exists(), (path.name, image)
            assert "alt" in image, (path.name, image)
    _check_gallery(target, pages, monkeypatch)


def _check_gallery(target, pages, monkeypatch):
    """Every page has a picture, and a test of its own."""
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    order = importlib.import_module("order")
    files = {path.stem for path in (DOCS / "gallery").glob("*.py")}
    assert files == set(order.PAGES)
    for name in order.PAGES:
        page = pages[target / "auto_gallery" / f"{name}.html"]
        assert any(f"sphx_glr_{name}_" in image["src"] for image in page.images), name
        assert (ROOT / "tests" / "gallery" / f"test_{name}.py").exists(), name


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    here, there = tmp_path / "a.html", tmp_path / "b.html"
    texts = {here: '<a href="b.html#x">1</a><a href="b.html#y">2</a><a href="c.html">3</a><a href="#z">4</a>',
             there: '<p id="x">'}  # fmt: skip
    for path, text in texts.items():
        path.write_text(text)
    pages = {path: Page(text) for path, text in texts.items()}
    assert list(broken(pages)) == [("a.html", "b.html#y"), ("a.html", "c.html"), ("a.html", "#z")]
    assert Page('<script src="https://cdn.example/x.js"></script>').loaded == ["https://cdn.example/x.js"]
