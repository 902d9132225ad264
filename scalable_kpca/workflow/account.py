"""What a committed run says of itself, read for people: checked against its commit list and field by field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from scalable_kpca.errors import StorageError
from scalable_kpca.workflow.files import read_json
from scalable_kpca.workflow.layout import RunDirectory
from scalable_kpca.workflow.ledger import Ledger

__all__ = ["Account", "CertificateRecord", "Metrics", "PlanRecord", "RunRecord", "read_account"]

READ = ("embedding", "embedding.zarr", "metrics.json", "run.json", "ledger.json")
REMEDY = "`skpca run` with the configuration of this output repairs it"

Number = float | None  # what is not finite was written as null
Count = Annotated[int, Field(ge=0)]
Numbers = list[Number]


class _Record(BaseModel):
    """Fields of the right types; what a later version adds is left alone."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


R = TypeVar("R", bound=_Record)


class CertificateRecord(_Record):
    """Of an exact or of a Nyström fit: see `certificate.Certificate` and `nystroem.NystroemCertificate`."""

    eigenvalue_bounds: Numbers
    explained_variance_ratio: Numbers
    complete: bool
    missed_bound: Number
    completeness: str
    residual_norms: Numbers = []
    total_variance: Number = None
    kernel_error: Number = None
    failure_probability: Number = None
    certified: bool = True
    trace: Number = None
    trace_residual: Number = None
    rounding: Number = None
    total_variance_bound: Number = None
    explained_variance_bound: Number = None
    rank: Count | None = None
    n_landmarks: Count | None = None


class Deviation(_Record):
    """How far a partition is from the rows of the fit, in one way."""

    value: Number
    where: str = ""


class ShareRecord(_Record):
    """How much of the scores a linear function of the features has: see `health.LinearShare`."""

    linear: Number
    leading: Number


class Metrics(_Record):
    """The fields of ``metrics.json`` that a page has."""

    method: str
    n_samples: Count
    n_features: Count
    n_components: Count
    kernel: dict[str, Any]
    solver: str
    n_passes: Count
    tile_dtype: str
    eigenvalues: Numbers
    certificate: CertificateRecord
    explained_variance: Number
    effective_rank: Number = None
    relative_residual: Number = None
    linear_share: ShareRecord | None = None
    drift: dict[str, Number] = {}
    health: dict[str, dict[str, Deviation]] = {}

    @model_validator(mode="after")
    def _every_component_has_its_numbers(self) -> Self:
        bounds, shares = self.certificate.eigenvalue_bounds, self.certificate.explained_variance_ratio
        if not len(self.eigenvalues) == len(bounds) == len(shares) == self.n_components:
            raise ValueError(f"eigenvalues, bounds and shares are not {self.n_components} each")
        return self


class PlanRecord(_Record):
    """The fields of a plan that can be compared with what happened, or say where the work was done."""

    seconds: Number = None
    peak_memory: Count | None = None
    memory_limit: Count | None = None
    n_threads: Count | None = None
    expected_passes: Count | None = None
    n_tiles: Count | None = None
    tile_rows: Count | None = None
    gram: str | None = None
    disk_bytes: Count | None = None
    n_landmarks: Count | None = None
    row_passes: Count | None = None
    reasons: list[str] = []


class TileCounts(_Record):
    """Tiles of an exact run."""

    computed: Count
    read: Count
    repaired: Count


class LandmarksRecord(_Record):
    """How the landmarks of a Nyström run were found."""

    method: str
    passes: Count
    note: str = ""


class _Source(_Record):
    uri: str
    id: list[str] = []
    passthrough: list[str] = []


class _Limits(_Record):
    warn: Number = None


class _Drift(_Limits):
    missing: _Limits = _Limits()
    outside: _Limits = _Limits()
    mean: _Limits = _Limits()
    spread: _Limits = _Limits()
    unknown: _Limits = _Limits()
    psi: _Limits = _Limits()
    novelty: _Limits = _Limits()


class _Output(_Record):
    format: str = "parquet"


class _Cluster(_Record):
    kind: str = "threads"


class ConfigRecord(_Record):
    """The fields of a configuration that a page speaks about; it shows them all."""

    source: _Source
    output: _Output = _Output()
    drift: _Drift = _Drift()
    cluster: _Cluster = _Cluster()
    novelty: bool = False


class RunRecord(_Record):
    """The fields of ``run.json`` that a page has."""

    config: ConfigRecord
    seconds: Number
    finished: str
    host: str
    versions: dict[str, str]
    peak_memory: Count | None = None  # earlier runs did not record it
    plan: PlanRecord | None = None
    tiles: TileCounts | None = None
    resumed_passes: Count = 0
    resumed_spans: Count = 0
    residuals_by_pass: list[Numbers] = []
    landmarks: LandmarksRecord | None = None
    previous: str | None = None
    base: str | None = None
    added: list[str] = []
    withdrawn: list[str] = []


@dataclass(frozen=True)
class Account:
    """Everything that a page says but for the scores.

    Attributes
    ----------
    fingerprint : str
        Of the run.
    metrics : Metrics
    run : RunRecord
    config : str
        As it was asked for, whatever it holds: JSON.
    ledger : Ledger or None
        Of a Nyström run.
    parts : tuple of Path
        The committed files of scores, in order.
    """

    fingerprint: str
    metrics: Metrics
    run: RunRecord
    config: str
    ledger: Ledger | None
    parts: tuple[Path, ...]

    @property
    def is_update(self) -> bool:
        """Whether an update made the run: its scores are those of the rows that it has added."""
        return self.run.previous is not None


def read_account(run: RunDirectory) -> Account:
    """Account of a committed run.

    Raises
    ------
    StorageError
        When a file that it is read from is not what was committed, or not what this package writes.

    Notes
    -----
    Reads the scores once for their digests, and nothing of the model.
    """
    problems = run.problems(READ)
    if problems:
        raise StorageError(f"{problems[0]}; {REMEDY}.")
    description = _read(run, "run.json")
    ledger = Ledger.read(run.path) if run.digests("ledger.json") else None
    return Account(
        fingerprint=run.fingerprint,
        metrics=_checked(Metrics, _read(run, "metrics.json"), run.path / "metrics.json"),
        run=_checked(RunRecord, description, run.path / "run.json"),
        config=_spelled_out(description["config"], run.path / "run.json"),
        ledger=ledger,
        parts=tuple(run.path / name for name in sorted(run.digests("embedding"), key=_place)),
    )


def _read(run: RunDirectory, name: str) -> Any:
    if not run.digests(name):
        raise StorageError(f"{run.path / 'COMMIT.json'} lists no {name}; {REMEDY}.")
    return read_json(run.path / name)


def _checked(kind: type[R], fields: Any, path: Path) -> R:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:200]
        raise StorageError(f"{path} is damaged: {place}: {first['msg'][:200]}; {REMEDY}.") from error


def _spelled_out(config: Any, path: Path) -> str:
    try:
        return json.dumps(config, indent=1, ensure_ascii=False)
    except RecursionError:
        raise StorageError(f"{path} is damaged: config is nested too deeply; {REMEDY}.") from None


def _place(name: str) -> tuple[int, str]:
    """Parts by their numbers, which have five digits or more."""
    return len(name), name
