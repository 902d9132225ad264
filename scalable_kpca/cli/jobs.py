"""Commands of a job: plan it, run it."""

from __future__ import annotations

from pathlib import Path

import click

from scalable_kpca.cli.answers import NOTHING_TO_DO, count_partitions, say_answer, say_lines
from scalable_kpca.cli.failures import named
from scalable_kpca.cli.options import config_argument, json_option, on_scheduler, scheduler_option, set_option
from scalable_kpca.cli.places import published
from scalable_kpca.console import warn

__all__ = ["plan", "run"]


@click.command()
@config_argument
@set_option
@scheduler_option
@json_option
def run(config: Path, overrides: tuple[str, ...], scheduler: str | None, as_json: bool) -> None:
    """Run the job CONFIG, finish or repair it, or find that it is done (exit code 99)."""
    from scalable_kpca.report import plan_lines, summary_lines
    from scalable_kpca.workflow.engines import part_of_job
    from scalable_kpca.workflow.loading import read_draft
    from scalable_kpca.workflow.monitoring import watch_job, watching
    from scalable_kpca.workflow.progress import progress
    from scalable_kpca.workflow.stages import execute, prepare

    draft = read_draft(config, on_scheduler(scheduler, overrides))
    with part_of_job(draft), watching(watch_job(draft), named) as watch:
        prepared = prepare(draft.config(), config.resolve().parent)
        watch.start(prepared.fingerprint, prepared.source.paths)
        say_lines(plan_lines(prepared.plan), as_json)
        with progress(warn) as listener:
            outcome = execute(prepared, listener)
        answer = watch.answer
        answer |= {
            "status": outcome.status,
            "run": str(outcome.run.path),
            "embedding": str(outcome.run.path / "embedding"),
            "seconds": round(outcome.seconds, 3),
        }
        answer |= published(prepared.output, outcome.run)
        if outcome.fit is not None:
            lines = summary_lines(outcome.fit, outcome.seconds)
            say_lines(["", *lines, f"scores, model and metrics are in {outcome.run.path}"], as_json)
            model, certificate = outcome.fit.model, outcome.fit.model.certificate
            answer["n_components"] = model.n_components
            answer["explained_variance"] = float(certificate.explained_variance_ratio.sum())
            answer |= {"complete": certificate.complete, "missed_bound": certificate.missed_bound}
            answer["method"] = outcome.fit.model.solver if outcome.fit.model.n_passes == 0 else "exact"
        elif outcome.added or outcome.withdrawn:
            later = f"with {count_partitions(outcome.added)} added by updates and {outcome.withdrawn} withdrawn"
            say_lines([f"nothing to do: this input and configuration, {later}, gave {outcome.run.path}"], as_json)
        elif outcome.status == "restored":
            say_lines(
                [f"restored: this input and configuration gave {outcome.run.path}, which is in force again"], as_json
            )
        else:
            say_lines([f"nothing to do: this input and configuration gave {outcome.run.path}"], as_json)
        say_answer(answer, as_json)
        if outcome.status == "unchanged":
            raise SystemExit(NOTHING_TO_DO)


@click.command()
@config_argument
@set_option
@click.option("--calibrate", is_flag=True, help="Measure this machine again; by default once, and for large jobs only.")
@json_option
def plan(config: Path, overrides: tuple[str, ...], calibrate: bool, as_json: bool) -> None:
    """Say what the job CONFIG would do and what it would take, without doing it."""
    from scalable_kpca.report import plan_lines
    from scalable_kpca.workflow.advising import advise
    from scalable_kpca.workflow.checks import check_budget
    from scalable_kpca.workflow.loading import load_config
    from scalable_kpca.workflow.stages import outline

    job = outline(load_config(config, overrides), config.resolve().parent, calibrate=calibrate)
    check_budget(job.config, job.plan, job.source)
    say_lines(plan_lines(job.plan), as_json)
    answer = {"plan": job.plan.to_json()}
    if job.plan.method == "nystroem":
        advice = advise(job)
        say_lines(["", *advice.lines()], as_json)
        answer["advice"] = advice.to_json()
    say_answer(answer, as_json)
