"""The page about a run: one file of HTML with its pictures inside, which asks nobody for anything."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from scalable_kpca.errors import ConfigError, storage_errors
from scalable_kpca.markup import Html, html, join, spell
from scalable_kpca.objects import put_object
from scalable_kpca.plots import check_plots
from scalable_kpca.workflow import page_facts, page_figures, page_health, page_plan
from scalable_kpca.workflow.account import Account, read_account
from scalable_kpca.workflow.files import replace_page
from scalable_kpca.workflow.layout import PAGE, Output, RunDirectory
from scalable_kpca.workflow.parts import score_names
from scalable_kpca.workflow.remote import RemoteOutput
from scalable_kpca.workflow.score_files import STORE
from scalable_kpca.workflow.score_sample import ScoreSample, choose_colour, read_sample

__all__ = ["Page", "write_page"]


@dataclass(frozen=True)
class Page:
    """What `write_page` did.

    Attributes
    ----------
    path : Path
        Of the page.
    run : RunDirectory
        What it is about.
    n_bytes : int
    colour : str or None
        Column that colours the scores.
    """

    path: Path
    run: RunDirectory
    n_bytes: int
    colour: str | None


def write_page(output: Output, destination: Path | None = None, *, colour: str | None = None) -> Page:
    """Write a page about the run in force in an output, or replace an earlier one.

    Parameters
    ----------
    output : Output
    destination : Path, optional
        File that ends in ``.html``; by default ``report.html`` in the output, also on S3.
    colour : str, optional
        Column beside the scores that colours them; by default the first passthrough column of numbers or of few values.

    Returns
    -------
    Page
        The same run gives the same bytes with the same libraries.

    Raises
    ------
    ConfigError
        When matplotlib is not installed, the destination is no place for a page, or the column does not fit.
    StorageError
        When there is no run, a file that is read is not what was committed, or the page cannot be written.

    Notes
    -----
    Cost: the scores are read once for their digests, and the first two columns of them once more for a sample. Memory
    does not depend on the number of rows. The model is not read, and the lock is not needed: whoever publishes another
    run meanwhile leaves this one as it is, unless ``keep`` removes it.
    """
    check_plots()
    place = _place(output, destination)
    run = output.require_latest()
    with storage_errors(f"reading {run.path}"):
        account = read_account(run)
        chosen = choose_colour(account.parts, colour, account.run.config.source.passthrough)
        sample = read_sample(
            account.parts,
            score_names(account.metrics.n_components)[:2] if account.metrics.n_components else [],
            novelty=account.run.config.novelty,
            colour=chosen,
            store=run.path / STORE if account.run.config.output.format == "zarr" else None,
        )
    text = _compose(account, sample, chosen)
    replace_page(place, text)
    if destination is None and output.remote is not None:
        put_object(RemoteOutput(output.remote).page, text.encode(), "text/html; charset=utf-8")
    return Page(place, run, len(text.encode()), chosen)


def _place(output: Output, destination: Path | None) -> Path:
    """Where the page goes; ConfigError where it could take the place of anything else."""
    if destination is None:
        return output.path / PAGE
    if destination.parts[0].endswith(":"):
        raise ConfigError(
            f"--to={destination} is no file of this machine; leave it out, and the page of an output on S3 is there."
        )
    if destination.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--to={destination} does not end in .html; name a file for the page.")
    if destination.resolve().is_relative_to(output.path.resolve() / "runs"):
        raise ConfigError(
            f"--to={destination} lies among the runs of {output.path}, which never change; choose another."
        )
    return destination


def _compose(account: Account, sample: ScoreSample, colour: str | None) -> Html:
    metrics = account.metrics
    title = f"Kernel PCA of {spell(metrics.n_samples)} rows × {spell(metrics.n_features)} features"
    sections = [
        page_facts.what_ran(account),
        page_figures.spectrum(account),
        page_facts.certificate(account),
        page_figures.scores(account, sample, colour),
        page_figures.novelty(sample),
        page_plan.partitions(account),
        page_health.health(account),
        page_plan.plan_and_actual(account),
        page_figures.passes(account),
        page_facts.environment(account),
    ]
    template = files("scalable_kpca.workflow").joinpath("page.html").read_text(encoding="utf-8")
    headline = join((page_facts.headline(account), page_health.verdict(account)), " ")
    return html(template, title=title, headline=headline, sections=join(sections, "\n"))
