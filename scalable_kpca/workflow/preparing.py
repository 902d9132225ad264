"""What comes before a run: the source is opened, its columns are prepared, the job is checked, planned and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.source import Copies, RawSource, SampledSource, Source, open_source, prepare_columns, sample_columns
from scalable_kpca.source.location import COPIED, find_files, local_files, source_kind
from scalable_kpca.workflow.checks import check_apart, check_names
from scalable_kpca.workflow.config import Config, SourceConfig
from scalable_kpca.workflow.files import file_states
from scalable_kpca.workflow.identity import Planned, Prepared, run_fingerprint
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.mirror import output_at, refresh
from scalable_kpca.workflow.planned import plan_job

__all__ = ["outline", "prepare"]


def outline(config: Config, base: Path, *, calibrate: bool = False) -> Planned:
    """Plan the fit; of the source's bytes only what says how many rows and which columns there are is read.

    What is copied before it is read, CSV and Arrow files, is not copied now: a sample says about how many rows it has.

    Parameters
    ----------
    config : Config
        From `load_config`.
    base : Path
        What relative paths are relative to: the directory of the configuration file.
    calibrate : bool
        Whether the machine is measured even for a small job, and again when it has been measured.

    Raises
    ------
    ConfigError, InvalidInputError, MemoryLimitError
        Whatever can be known to be wrong now.
    """
    wanted, output = config.source, _output_of(config, base)
    files, guesses = find_files(wanted.uri, base), _guesses(wanted)
    if source_kind(files) in COPIED:
        sample = SampledSource(local_files(files), wanted.csv.options, *_columns(wanted), recipe=wanted.recipe)
        source: Source = sample
        guesses += [sample.note] if sample.note else []
    else:
        raw = _open(config, base, output)
        source = raw if wanted.recipe is None else sample_columns(raw, wanted.recipe)
    job = _planned(config, source, output, calibrate=calibrate)
    return replace(job, plan=replace(job.plan, reasons=(*job.plan.reasons, *guesses))) if guesses else job


def prepare(config: Config, base: Path) -> Prepared:
    """Plan a job and name its run; reads the source's bytes once for their digest, and copies CSV and Arrow files.

    Where columns are prepared, their rows are read once more, for what they are prepared with. See `outline`.
    """
    output = _output_of(config, base)
    refresh(output)
    raw = _open(config, base, output)
    states = {path: file_states([path]) for path in raw.paths}
    digest, source = raw.fingerprint(), raw  # type: str, Source
    if config.source.recipe is not None:
        prepared = prepare_columns(raw, config.source.recipe)
        digest, source = prepared.fingerprint_of(digest), prepared
    job = _planned(config, source, output)
    name = run_fingerprint(config, digest, job.plan)
    return Prepared(config, source, job.plan, output, digest, states, name)


def _output_of(config: Config, base: Path) -> Output:
    named = output_at(config.output.path, base, config.output.work)
    output = replace(named, path=named.path.resolve())
    check_apart("output.path", output, config.source.uri, base)
    return output


def _open(config: Config, base: Path, output: Output) -> RawSource:
    """The source with its columns as they are."""
    wanted = config.source
    ids, features, passthrough, categorical, partition = _columns(wanted)
    raw = open_source(
        wanted.uri,
        base,
        id_columns=ids,
        features=features,
        passthrough=passthrough,
        categorical=categorical,
        partition=partition,
        copies=Copies(output.tables, wanted.csv.options),
    )
    if raw.n_samples == 0:
        raise _no_rows(wanted)
    return raw


def _columns(wanted: SourceConfig) -> tuple[list[str], list[str] | None, list[str], list[str], list[str]]:
    return wanted.id, wanted.features, wanted.passthrough, wanted.categorical, wanted.partition


def _planned(config: Config, source: Source, output: Output, *, calibrate: bool = False) -> Planned:
    if source.n_samples == 0:
        raise _no_rows(config.source)
    k = config.n_components
    if isinstance(k, int) and k > source.n_samples:
        raise ConfigError(f"n_components={k}, but the source has {source.n_samples} rows; ask for at most that many.")
    check_names(source.label_names, k, config.beside)
    return Planned(config, source, plan_job(config, source, output, calibrate=calibrate), output)


def _no_rows(wanted: SourceConfig) -> InvalidInputError:
    return InvalidInputError(f"source.uri={wanted.uri!r} has no rows; at least one is needed.")


def _guesses(wanted: SourceConfig) -> list[str]:
    """What a plan from a sample of the rows does not know of columns that are prepared."""
    guesses = []
    if wanted.categorical:
        guesses.append("categories were counted on some of the rows: there may be more features")
    if wanted.nulls == "drop":
        guesses.append("rows with nulls are not left out here: there may be fewer rows")
    return guesses
