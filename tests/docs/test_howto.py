"""The how-to pages are true: their Python runs and prints what they show, and what they name exists."""

import contextlib
import io
import re
import shlex
import signal
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import click
import pytest
import yaml
from pydantic import BaseModel

from scalable_kpca import errors
from scalable_kpca.certificate import Certificate
from scalable_kpca.cli import skpca
from scalable_kpca.cli.answers import NOTHING_TO_DO
from scalable_kpca.cli.failures import BUG
from scalable_kpca.nystroem import NystroemCertificate
from scalable_kpca.workflow.config import Config

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page for page in (DOCS / "howto").glob("*.md") if page.name != "index.md")
PART = "# part of a configuration"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def name_of(page):
    return page.stem


def blocks(page):
    """(language, text) of every fenced block, in order; also of those in lists."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [(kind, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)) for indent, kind, text in found]


def texts_of(kind):
    return [pytest.param(text, id=f"{page.stem}-{at}") for page in PAGES for at, text in enumerate(of(page, kind))]


def of(page, kind):
    return [text for language, text in blocks(page) if language == kind]


def inline(page):
    """What stands in code font in the text, without fenced blocks."""
    prose = re.sub(r"^ *```\w+\n.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose)]


def commands():
    """Every command that a console shows, and those that the text shows whole."""
    for page in PAGES:
        lines = [line for text in of(page, "console") for line in text.replace("\\\n", "").splitlines()]
        shown = [line[2:] for line in lines if line.startswith("$ ")]
        said = [text for text in inline(page) if text.startswith("skpca ")]
        for at, line in enumerate([*shown, *said]):
            for part in line.split("&&"):
                if part.split()[:1] == ["skpca"]:
                    yield pytest.param(part, id=f"{page.stem}-{at}")


def model_of(annotation):
    """The section that a field holds, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return next((found for found in map(model_of, get_args(annotation)) if found), None)
    return None


def has_key(path, model=Config):
    """Whether a configuration has a key such as ``kernel.gamma``."""
    first, _, rest = path.partition(".")
    named = {field.alias or name: field for name, field in model.model_fields.items()}
    if first not in named:
        return False
    inner = model_of(named[first].annotation)
    return not rest or inner is None or has_key(rest, inner)


def keys_of(fields, before=""):
    for key, value in fields.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from keys_of(value, f"{before}{key}.")


def test_there_is_a_page_for_each_task():
    listed = re.findall(r"^[a-z0-9-]+$", (DOCS / "howto" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {page.stem for page in PAGES} == set(listed)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # nominal rates, whatever was measured here
    names, shown = {}, blocks(page)
    for at, (kind, text) in enumerate(shown):
        if kind != "python":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, str(page), "exec"), names)
        follows = shown[at + 1] if at + 1 < len(shown) else ("", "")
        expected = follows[1] if follows[0] == "text" else ""
        assert_alike(printed.getvalue(), expected)


def assert_alike(printed, expected):
    """Words and whole numbers are the same, others but for two units of their last digit."""
    assert NUMBER.sub("0", printed).split() == NUMBER.sub("0", expected).split()
    for found, said in zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True):
        digits = said.partition("e")[0].partition(".")[2]
        last = 10.0 ** -len(digits) * float("1e" + (said.partition("e")[2] or "0"))
        assert abs(float(found) - float(said)) <= (2.001 * last if digits else 0), f"{said} is shown, {found} printed"


@pytest.mark.parametrize("text", texts_of("yaml"))
def test_a_configuration_of_a_page_is_valid(text):
    fields = yaml.safe_load(text)
    unknown = [key for key in keys_of(fields) if not has_key(key)]
    assert not [key for key in unknown if not key.startswith("cluster.options.")]
    if text.startswith(PART):
        fields = {"source": {"uri": "rows.npy"}, "output": {"path": "out"}, **fields}
    Config.model_validate(fields)


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_of_a_page_exists_with_its_options(line):
    words = shlex.split(line)
    command = skpca.commands[words[1]]
    options = {option: parameter for parameter in command.params for option in parameter.opts}
    rest = iter(words[2:])
    arguments = 0
    for word in rest:
        if not word.startswith("--"):
            arguments += 1
            continue
        assert word in options, f"skpca {words[1]} has no {word}"
        if not getattr(options[word], "is_flag", False):
            value = next(rest, "")  # text may name the option alone
            if word == "--set" and value:
                assert has_key(value.partition("=")[0]), value
    if len(words) > 2:  # else the command is only named
        assert arguments == sum(isinstance(parameter, click.Argument) for parameter in command.params)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_keys_and_sections_that_a_page_names_exist(page):
    options = {option for command in skpca.commands.values() for each in command.params for option in each.opts}
    sections = {name for name, field in Config.model_fields.items() if model_of(field.annotation)}
    for text in inline(page):
        if re.fullmatch(r"--[a-z]+", text):
            assert text in options | {"--set"}, text
        override = re.fullmatch(r"--set ([a-z_.]+)(…|=\S*)", text)
        if override:
            assert has_key(override[1].rstrip(".")), text
        key = re.fullmatch(r"([a-z_]+(?:\.[a-z_]+)+)(: \S+)?", text)
        if key and key[1].partition(".")[0] in sections and not key[1].endswith((".md", ".json", ".yaml")):
            assert has_key(key[1]), text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_exit_codes_that_a_page_names_exist(page):
    named = {getattr(errors, name).exit_code for name in errors.__all__ if hasattr(getattr(errors, name), "exit_code")}
    known = named | {0, 2, BUG, NOTHING_TO_DO, 128 + signal.SIGKILL, 128 + signal.SIGTERM}  # what a shell makes of them
    prose = re.sub(r"^ *```\w+\n.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    flat = " ".join(re.sub(r"`[^`]*`", "``", prose).split())
    found = re.findall(r"(?:[Ee]xit codes? |exits? with |ends? with |with |\()(\d\d)(?=[\s.,;:)])", flat)
    found += [code for row in re.findall(r"^\| ([\d, ]+) \|", prose, re.MULTILINE) for code in row.split(", ")]
    assert {int(code) for code in found} <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_of_the_repository_that_a_page_names_are_there(page):
    root = DOCS.parent
    for text in inline(page):
        if re.match(r"(docs|cluster|pipelines|tests)/[\w@./-]+$", text):
            assert (root / text).exists(), text


def test_the_certificate_page_names_every_field():
    said = set(inline(DOCS / "howto" / "certificate.md"))
    for kind, derived in ((Certificate, "effective_rank"), (NystroemCertificate, "relative_residual")):
        assert {*kind.__dataclass_fields__, derived} <= said


def test_the_glossary_is_in_alphabetical_order():
    terms = re.findall(r"^(\S.*)\n: ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) > 35
    spoken = {"α": "alpha", "κ": "kappa", "K̃": "k tilde"}
    plain = [term.strip("`").partition(",")[0] for term in terms]
    keys = [spoken.get(term, term).casefold() for term in plain]
    assert keys == sorted(keys)
