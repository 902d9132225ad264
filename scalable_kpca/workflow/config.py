"""The configuration of a run: a small YAML file, checked completely before anything else happens."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from scalable_kpca.errors import ConfigError
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.workflow.kernel_config import KernelConfig, Section

__all__ = [
    "BudgetConfig",
    "ClusterConfig",
    "Config",
    "DriftConfig",
    "KernelConfig",
    "NystroemConfig",
    "OutputConfig",
    "SolverConfig",
    "SourceConfig",
    "TlsConfig",
    "check_place",
    "load_config",
    "override_config",
]

MAX_BYTES = 2**20  # of a configuration


def _without_secrets(value: str) -> str:
    """Refuse a URI with a password in it: configurations are published with every run."""
    place = urlsplit(value).netloc if "://" in value else ""
    port = place.rpartition(":")[2] if ":" in place.rpartition("]")[2] else ""  # an address of IPv6 has brackets
    if "@" in place or not (port.isdigit() or port in ("", "*")):  # a secret may have a slash in it
        text = "a name or password is in the URI, and configurations are published with every run; give it by the"
        raise PydanticCustomError("secret", "{message}", {"message": f"{text} environment or a credentials file"})
    return value


NonEmpty = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
Place = Annotated[NonEmpty, AfterValidator(_without_secrets)]
Size = int | str


class SourceConfig(Section):
    """Where the rows come from."""

    uri: Place = Field(description="Parquet files (path, directory or glob), one .npy file or one zarr array.")
    id: list[str] = Field(default=[], description="Columns that identify a row; they travel to the output.")
    features: list[str] | None = Field(
        default=None, description="Names or globs; by default every numeric column left."
    )
    passthrough: list[str] = Field(default=[], description="More columns that travel to the output.")
    nulls: Literal["error"] = Field(default="error", description="A null, NaN or infinite feature is an error.")

    @field_validator("id", "features", "passthrough", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class SolverConfig(Section):
    """The eigensolver."""

    name: Literal["auto", "dense", "arpack", "block_krylov", "power"] = "auto"
    tol: float | None = Field(
        default=None, ge=0, description="Relative residual (block_krylov, power) or ARPACK's tolerance."
    )
    max_passes: int | None = Field(
        default=None, ge=0, description="Limit on passes; 0 is Nyström; with method nystroem, passes that refine it."
    )


class NystroemConfig(Section):
    """Landmarks of a Nyström fit."""

    n_landmarks: int = Field(default=1000, ge=1, description="At most as many as there are rows.")
    landmarks: Literal["uniform", "kmeans++", "rpcholesky"] = "uniform"


class DriftConfig(Section):
    """How badly landmarks may reach a new partition: its share of trace left out, over that of the base run's rows."""

    warn: float | None = Field(default=2.0, gt=0, description="Ratio above which `skpca update` warns.")
    fail: float | None = Field(default=None, gt=0, description="Ratio above which it refuses the partition.")


class OutputConfig(Section):
    """Where results go."""

    path: Place = Field(description="Directory, relative to the configuration file.")


class TlsConfig(Section):
    """PEM files of an encrypted scheduler, relative to the configuration file."""

    ca: NonEmpty = Field(description="Certificates that scheduler and workers must be signed by.")
    cert: NonEmpty = Field(description="This client's certificate.")
    key: NonEmpty = Field(description="Its key, readable by its owner only (chmod 600).")


class ClusterConfig(Section):
    """Which Dask scheduler runs the tasks."""

    kind: Literal["threads", "synchronous", "local", "address"] = "threads"
    n_threads: int | None = Field(default=None, ge=1, description="Of the process, or of each worker of kind local.")
    n_workers: int | None = Field(default=None, ge=1, description="Worker processes of kind local.")
    address: Place | None = Field(default=None, description="Of a running scheduler, for kind address.")
    wait: float = Field(default=30, gt=0, description="Seconds that kind address waits for a first worker.")
    stall: float = Field(default=1800, gt=0, description="Seconds in which nothing finishes: a run gives up.")
    dashboard: bool = Field(default=False, description="Whether kind local serves dask's dashboard on loopback.")
    tls: TlsConfig | None = Field(default=None, description="Of kind address: nothing is said unencrypted then.")

    @property
    def n_jobs(self) -> int | None:
        """Threads that are asked for: one where tasks run one after another."""
        return 1 if self.kind == "synchronous" else self.n_threads


class BudgetConfig(Section):
    """What the run may use."""

    memory: Size | None = Field(default=None, description="Peak of a process, bytes or text such as 4GiB.")
    disk: Size | None = Field(default=None, description="Bytes of rows, tiles and journal, number or text: 50GiB.")

    @field_validator("memory", "disk")
    @classmethod
    def _is_a_size(cls, value: Size | None) -> Size | None:
        try:
            resolve_memory_limit(value)
        except ConfigError as error:
            message = f'{value!r} is not a size; give bytes or text such as "4GiB"'
            raise PydanticCustomError("size", "{message}", {"message": message}) from error
        return value


class Config(Section):
    """A kernel PCA job."""

    source: SourceConfig
    output: OutputConfig
    kernel: KernelConfig = KernelConfig()
    method: Literal["auto", "exact", "nystroem"] = "auto"
    n_components: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | None = 10
    gram: Literal["auto", "zarr", "memory", "recompute"] = "auto"
    dtype: Literal["auto", "float64", "float32"] = "auto"
    tile_rows: int | None = Field(default=None, ge=1)
    solver: SolverConfig = SolverConfig()
    nystroem: NystroemConfig = NystroemConfig()
    drift: DriftConfig = DriftConfig()
    indefinite: Literal["error", "clip"] = "error"
    on_failure: Literal["error", "return"] = Field(
        default="error",
        description="A solve that gives up is an error, or is published with complete=false. ARPACK that finds nothing "
        "in its passes is an error in either case: there is nothing to publish.",
    )
    keep: Literal["all", "results"] | Annotated[int, Field(ge=1)] = Field(
        default="all",
        description="After publishing: everything stays; rows, tiles and journals of committed runs go; or all but so "
        "many runs go.",
    )
    seed: int = Field(default=0, ge=0)
    cluster: ClusterConfig = ClusterConfig()
    budget: BudgetConfig = BudgetConfig()


def check_place(option: str, value: str) -> None:
    """ConfigError unless an option may be the place of something: see `SourceConfig`."""
    try:
        TypeAdapter(Place).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{option}: {error.errors()[0]['msg']}; correct it.") from None  # which repeats the value


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Configuration from a YAML file, with ``a.b=value`` overrides.

    Parameters
    ----------
    path : Path
        The file.
    overrides : sequence of str
        Dotted keys and YAML values, applied in order.

    Returns
    -------
    Config

    Raises
    ------
    ConfigError
        Naming every key at fault; for an unknown key, the nearest known one.
    """
    try:
        with path.open("rb") as stream:  # a pipe or a device, too, which may never end
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{path} is longer than {MAX_BYTES} bytes: it is no configuration.")
        fields = yaml.safe_load(content.decode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{path} holds no mapping; a configuration has at least source and output.")
    for override in overrides:
        _apply(fields, override)
    config = _validated(fields, str(path))
    tls = config.cluster.tls
    if tls is None:
        return config
    # a run is described by where its files are, wherever it is taken up again
    base = path.absolute().parent
    files = {name: str(base / value) for name, value in tls.model_dump().items()}
    return config.model_copy(
        update={"cluster": config.cluster.model_copy(update={"tls": tls.model_copy(update=files)})}
    )


def override_config(fields: dict[str, Any], overrides: Sequence[str], sections: Sequence[str]) -> Config:
    """Configuration of an earlier run with ``a.b=value`` overrides, which may be of some sections only.

    Raises
    ------
    ConfigError
        For another section, or a value that means nothing.
    """
    for override in overrides:
        if override.partition("=")[0].partition(".")[0] not in sections:
            raise ConfigError(
                f"--set {override!r}: an update may change {', '.join(sections)} only; for anything else `skpca run` "
                "makes a new base."
            )
        _apply(fields, override)
    return _validated(fields, "the configuration of the run in force")


def _validated(fields: dict[str, Any], place: str) -> Config:
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        text = "; ".join(_explain(problem) for problem in error.errors())
        raise ConfigError(f"{place}: {text}" + ("" if text.endswith("?") else ".")) from error


def _apply(fields: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {override!r} is not of the form key.key=value.")
    *parents, last = key.split(".")
    for parent in parents:
        inner = fields.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {override!r}: {parent} is a value, not a section.")
        fields = inner
    try:
        fields[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override!r}: the value is not YAML ({error}).") from error


def _explain(problem: Any) -> str:
    # pydantic appends the tried member of a union to the place; only names that a file can contain are keys
    place = [
        str(part) for part in problem["loc"] if not str(part).startswith(("function-", "constrained-", "literal["))
    ]
    if problem["type"] in ("size", "width", "secret"):
        return f"{'.'.join(place)}: {problem['msg']}"
    if problem["type"] != "extra_forbidden":
        return f"{'.'.join(place)}: {problem['msg']}, found {problem['input']!r}"
    section: Any = Config
    for part in place[:-1]:
        section = section.model_fields[part].annotation
    known = list(section.model_fields)
    near = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
    return f"unknown key {'.'.join(place)!r}: {advice}"
