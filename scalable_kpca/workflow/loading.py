"""A configuration from its file, the environment and the command line, checked completely before anything happens."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from scalable_kpca.errors import ConfigError
from scalable_kpca.workflow.cluster_config import ClusterConfig, remaining
from scalable_kpca.workflow.config import Config, MonitorConfig, Place

__all__ = ["Draft", "check_place", "draft_of", "load_config", "override_config", "read_draft", "stored_draft"]

Section = TypeVar("Section", bound=BaseModel)

MAX_BYTES = 2**20  # of a configuration
PREFIX, SEPARATOR = "SKPCA_", "__"  # SKPCA_KERNEL__GAMMA is kernel.gamma
PLACES = ("prometheus", "openlineage", "performance_report")  # of the section `monitor`
OF_TESTS = "SKPCA_TEST_"


@dataclass(frozen=True, eq=False)
class Draft:
    """A configuration that has been read and not checked.

    Attributes
    ----------
    fields : dict
        Its keys, those of the environment and the command line among them.
    origin : str
        Where they are from, for messages.
    base : Path
        What paths of `cluster` and `monitor` are relative to: absolute.
    """

    fields: dict[str, Any]
    origin: str
    base: Path

    def config(self) -> Config:
        """The configuration; ConfigError naming every key at fault."""
        try:
            config = Config.model_validate(self.fields)
        except ValidationError as error:
            text = "; ".join(_explain(problem) for problem in error.errors())
            raise ConfigError(f"{self.origin}: {text}" + ("" if text.endswith("?") else ".")) from error
        # a run is described by where its files are, wherever it is taken up again
        monitor = _placed(config.monitor, PLACES, self.base)
        cluster = _placed(config.cluster, ("scheduler_file",), self.base)
        if cluster.tls is not None:
            cluster = cluster.model_copy(update={"tls": _placed(cluster.tls, ("ca", "cert", "key"), self.base)})
        return config.model_copy(update={"monitor": monitor, "cluster": cluster})

    def cluster(self) -> ClusterConfig:
        """The section `cluster`, whatever is wrong with others; one that is wrong itself asks for nothing."""
        try:
            return ClusterConfig.model_validate(self.fields.get("cluster", {}))
        except ValidationError:
            return ClusterConfig()

    def monitor(self) -> MonitorConfig:
        """The section `monitor` in the same way."""
        try:
            section = MonitorConfig.model_validate(self.fields.get("monitor", {}))
        except ValidationError:
            return MonitorConfig()
        return _placed(section, PLACES, self.base)


def check_place(option: str, value: str) -> None:
    """ConfigError unless an option may be the place of something: see `SourceConfig`."""
    try:
        TypeAdapter(Place).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{option}: {error.errors()[0]['msg']}; correct it.") from None  # which repeats the value


def load_config(path: Path, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Config:
    """Configuration from a file, which the environment overrides, which ``a.b=value`` overrides.

    Parameters
    ----------
    path : Path
        TOML where it is called ``*.toml``, else YAML.
    overrides : sequence of str
        Dotted keys and YAML values, applied in order.
    environment : mapping, optional
        Variables such as ``SKPCA_KERNEL__GAMMA``, whose values are YAML; those of this process.

    Returns
    -------
    Config

    Raises
    ------
    ConfigError
        Naming every key at fault; for an unknown key, the nearest known one.
    """
    return read_draft(path, overrides, environment).config()


def read_draft(path: Path, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Draft:
    """What `load_config` checks; ConfigError where there are no keys and values."""
    kind = "TOML" if path.suffix == ".toml" else "YAML"
    try:
        with path.open("rb") as stream:  # a pipe or a device, too, which may never end
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{path} is longer than {MAX_BYTES} bytes: it is no configuration.")
        fields = tomllib.loads(content.decode()) if kind == "TOML" else _parse_yaml(content.decode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (yaml.YAMLError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not {kind}: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{path} holds no mapping; a configuration has at least source and output.")
    variables = _variables(os.environ if environment is None else environment)
    changes = [*variables, *((f"--set {override!r}", *_split(override)) for override in overrides)]
    fields = _changed(fields, changes)
    return Draft(fields, " with ".join([str(path), *(name for name, _, _ in variables)]), path.absolute().parent)


def override_config(
    fields: dict[str, Any],
    overrides: Sequence[str],
    sections: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Configuration of an earlier run with ``a.b=value`` overrides, which may be of some sections only.

    What the environment says of these sections comes before them; of others it is for runs, and not heard. Relative
    paths in either start at the working directory. A performance report is asked for each time: what the earlier run
    says of one is left out.

    Raises
    ------
    ConfigError
        For another section, or a value that means nothing.
    """
    return stored_draft(fields, overrides, sections, environment).config()


def stored_draft(
    fields: dict[str, Any],
    overrides: Sequence[str],
    sections: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Draft:
    """What `override_config` checks."""
    monitor = fields.get("monitor")
    if isinstance(monitor, dict):
        fields = {**fields, "monitor": {key: value for key, value in monitor.items() if key != "performance_report"}}
    changes = []
    for name, key, value in _variables(os.environ if environment is None else environment):
        section = key.partition(".")[0]
        if section not in Config.model_fields:
            near = difflib.get_close_matches(section, Config.model_fields, n=1, cutoff=0.5)
            raise ConfigError(
                f"{name}: {section!r} is no key of a configuration; "
                + (f"did you mean {near[0]!r}?" if near else "remove this variable, or correct its name.")
            )
        if section in sections:
            changes.append((name, key, value))
    for override in overrides:
        if override.partition("=")[0].partition(".")[0] not in sections:
            raise ConfigError(
                f"--set {override!r}: only {', '.join(sections)} can be changed here; for anything else `skpca run` "
                "makes a new base."
            )
        changes.append((f"--set {override!r}", *_split(override)))
    return Draft(_changed(fields, changes), "the configuration of the run in force", Path.cwd())


class _Loader(yaml.SafeLoader):
    """YAML whose keys are there once: of two, the last one would count and the other would be gone."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)  # as it is written: nothing is merged into it yet
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                text = f"key {key.value!r} is there twice; leave one of them out"
                raise yaml.composer.ComposerError(None, None, text, key.start_mark)
            seen.add(key.value)
        return node


def _parse_yaml(text: str) -> Any:
    return yaml.load(text, _Loader)  # a SafeLoader


def draft_of(section: str, fields: Any, overrides: Sequence[str]) -> Draft:
    """What is said of one section alone; nothing where that means nothing, which is for the command to say."""
    mine = [override for override in overrides if override.partition("=")[0].partition(".")[0] == section]
    try:
        return stored_draft({section: fields}, mine, (section,))
    except ConfigError:
        return Draft({}, "nothing", Path.cwd())


def _placed(section: Section, names: Sequence[str], base: Path) -> Section:
    """A section whose paths are absolute."""
    paths = {name: getattr(section, name) for name in names}
    return section.model_copy(update={name: str(base / path) for name, path in paths.items() if path is not None})


def _variables(environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, dotted key and value of each variable of ours; one that is no key is refused with the others."""
    return [
        (name, name.removeprefix(PREFIX).lower().replace(SEPARATOR, "."), value)
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and not name.startswith(OF_TESTS)
    ]


def _split(override: str) -> tuple[str, str]:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {override!r} is not of the form key.key=value.")
    return key, text


def _changed(fields: dict[str, Any], changes: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """Fields with origins, dotted keys and YAML values in their order; what of `cluster` they replace goes first."""
    section = fields.get("cluster")
    if isinstance(section, dict):
        said = {key.removeprefix("cluster."): text for _, key, text in changes if key.startswith("cluster.")}
        fields = {**fields, "cluster": remaining(section, said)}
    for change in changes:
        _apply(fields, *change)
    return fields


def _apply(fields: dict[str, Any], origin: str, key: str, text: str) -> None:
    """Set a dotted key to a YAML value."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = fields.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{origin}: {parent} is a value, not a section.")
        fields = inner
    try:
        fields[last] = _parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin}: the value is not YAML ({error}).") from error


def _explain(problem: Any) -> str:
    # pydantic appends the tried member of a union to the place; only names that a file can contain are keys
    place = [
        str(part) for part in problem["loc"] if not str(part).startswith(("function-", "constrained-", "literal["))
    ]
    if problem["type"] in ("size", "width", "secret", "place", "roles", "drift", "cluster", "tiles", "monitor"):
        return f"{'.'.join(place)}: {problem['msg']}" if place else problem["msg"]
    if problem["type"] != "extra_forbidden":
        return f"{'.'.join(place)}: {problem['msg']}, found {problem['input']!r}"
    section: Any = Config
    for part in place[:-1]:
        kind = section.model_fields[part].annotation
        section = next((member for member in get_args(kind) if hasattr(member, "model_fields")), kind)
    known = [field.alias or name for name, field in section.model_fields.items()]
    near = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
    return f"unknown key {'.'.join(place)!r}: {advice}"
