"""What comes before a run: the source is opened, the job is checked, planned and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.source import Copies, SampledSource, Source, open_source
from scalable_kpca.source.location import COPIED, find_files, source_kind
from scalable_kpca.workflow.checks import check_names, check_separate
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import file_states
from scalable_kpca.workflow.identity import Planned, Prepared, run_fingerprint
from scalable_kpca.workflow.layout import WRITES, Output
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
    files = find_files(wanted.uri, base)
    if source_kind(files) not in COPIED:
        return _planned(config, _open(config, base, output), output, calibrate=calibrate)
    sample = SampledSource(files, wanted.csv.options, wanted.id, wanted.features, wanted.passthrough)
    job = _planned(config, sample, output, calibrate=calibrate)
    if not sample.note:
        return job
    return replace(job, plan=replace(job.plan, reasons=(*job.plan.reasons, sample.note)))


def _output_of(config: Config, base: Path) -> Output:
    output = Output((base / config.output.path).resolve())
    check_separate("output.path", output.path, WRITES, config.source.uri, base)
    return output


def _open(config: Config, base: Path, output: Output) -> Source:
    wanted = config.source
    return open_source(
        wanted.uri,
        base,
        id_columns=wanted.id,
        features=wanted.features,
        passthrough=wanted.passthrough,
        copies=Copies(output.tables, wanted.csv.options),
    )


def _planned(config: Config, source: Source, output: Output, *, calibrate: bool = False) -> Planned:
    wanted = config.source
    if source.n_samples == 0:
        raise InvalidInputError(f"source.uri={wanted.uri!r} has no rows; at least one is needed.")
    k = config.n_components
    if isinstance(k, int) and k > source.n_samples:
        raise ConfigError(f"n_components={k}, but the source has {source.n_samples} rows; ask for at most that many.")
    check_names(source.label_names, k, novelty=config.novelty)
    return Planned(config, source, plan_job(config, source, output, calibrate=calibrate), output)


def prepare(config: Config, base: Path) -> Prepared:
    """Plan a job and name its run; reads the source's bytes once for their digest, and copies CSV and Arrow files.

    See `outline`.
    """
    output = _output_of(config, base)
    job = _planned(config, _open(config, base, output), output)
    states = {part.path: file_states([part.path]) for part in job.source.parts}
    digest = job.source.fingerprint()
    name = run_fingerprint(config, digest, job.plan)
    return Prepared(config, job.source, job.plan, job.output, digest, states, name)
