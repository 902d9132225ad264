"""Rows that measure fits with landmarks, and the landmarks themselves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from tests.benchmarks.charts import Chart, Curve, Panel
from tests.benchmarks.children import Measurement, Subject, measure
from tests.benchmarks.datasets import DATASETS, N_CLUSTERS, TIGHTNESS
from tests.benchmarks.findings import GIGABYTE, OURS, Findings, K, Settings
from tests.benchmarks.manifold import N_FEATURES
from tests.benchmarks.streams import FILE_ROWS, STAGES
from tests.benchmarks.verdicts import Verdict, agreement, ratio

__all__ = ["landmarks", "nystroem_200k", "nystroem_stream"]

N_LANDMARKS = 1000
MEMORY = "1200MB"  # that `skpca run` may use
N_SEEDS = 5
METHODS = ("uniform", "kmeans++", "rpcholesky")
FLOAT32_AGREEMENT = 1e-5  # of λ₁, for kernel values and products in float32


def nystroem_200k(settings: Settings) -> Findings:
    n, m = settings.n, _count(settings.n)
    single, double = "scikit-learn Nystroem + PCA float32", "scikit-learn Nystroem + PCA float64"
    peers = {
        name: Subject("sklearn_nystroem", {"n": n, "k": K, "m": m, "dtype": name.split()[-1]})
        for name in (single, double)
    }
    options = {"n": n, "k": K, "m": m}
    found = measure({OURS: Subject("nystroem", {**options, "like_sklearn": False}), **peers}, settings.repeats)
    same = f"{OURS}, the landmarks of scikit-learn"
    found |= measure({same: Subject("nystroem", {**options, "like_sklearn": True})}, 1)
    ours, truth = found[OURS], found[double]["eigenvalues"]
    within = {"bound": FLOAT32_AGREEMENT}
    verdicts = [
        ratio(f"time of {single} / ours", found[single], ours, "≥", 2.5),
        ratio(f"time of {double} / ours", found[double], ours),
        ratio(f"peak memory of ours / {single}", ours, found[single], "≤", 1.0, of="peak_memory"),
        ratio(f"peak memory of ours / {double}", ours, found[double], of="peak_memory"),
        agreement(f"eigenvalues of ours beside {double}, same landmarks", found[same]["eigenvalues"], truth, **within),
        agreement(
            "squares of our scores beside our eigenvalues", found[same]["squares"], found[same]["eigenvalues"], **within
        ),
        # what is wrong with a peer in float32 is the peer's
        agreement(f"eigenvalues of {single}", found[single]["eigenvalues"], truth, is_asserted=False),
        Verdict("share of the trace that the landmarks leave out", ours["relative_residual"]),
    ]
    note = (
        f"{m} landmarks, {K} components, fit and scores together; ours in float32, which is the default at this size, "
        "from float32 rows. scikit-learn draws its landmarks itself: for the comparison of eigenvalues ours gets the "
        "same ones, in a run that is not part of the ratios."
    )
    return Findings(list(found.values()), verdicts, [note])


def nystroem_stream(settings: Settings) -> Findings:
    sizes = {n: f"n = {n}" for n in (settings.n, settings.n // 10, max(2 * K, settings.n // 1000))}
    needed = 1.3 * sum(sizes) * (4 * N_FEATURES + 8) + settings.n * 8 * (K + 1)
    free = shutil.disk_usage(settings.scratch).free
    if free < needed:
        reason = f"Not run: {needed / GIGABYTE:.3g} GB are needed, {free / GIGABYTE:.3g} GB are free; see `--scratch`."
        return Findings([], [Verdict("peak memory", None, "≤", 1.2, " GB")], [reason])
    with tempfile.TemporaryDirectory(dir=settings.scratch) as directory:
        folders = {n: str(Path(directory, f"rows-{n}")) for n in sizes}
        measure({f"write {n} rows": Subject("write_files", {"n": n, "directory": folders[n]}) for n in sizes}, 1)
        options = {"k": K, "m": N_LANDMARKS, "memory": MEMORY}
        found = measure(
            {name: Subject("run_command", {"n": n, "files": folders[n], **options}) for n, name in sizes.items()},
            settings.repeats,
        )
    many, few, idle = found.values()
    n, small, _ = sizes
    slope = (n / small) * (few.seconds - idle.seconds)
    flat = ratio("", _a_row(many, n), _a_row(few, small))
    verdicts = [
        Verdict(f"peak memory, {sizes[n]}", many.peak_memory / GIGABYTE, "≤", 1.2, " GB"),
        Verdict(f"peak memory, {sizes[small]}", few.peak_memory / GIGABYTE, "≤", 1.2, " GB"),
        ratio(f"peak memory, {sizes[n]} / {sizes[small]}", many, few, of="peak_memory"),
        *(
            Verdict(
                f"time a row, {sizes[n]} / {sizes[small]}: at {word}", flat.measured, sense, bound, "×", flat.spread
            )
            for word, sense, bound in (("most", "≤", 1.2), ("least", "≥", 0.8))
        ),
        Verdict("the same without the start", (many.seconds - idle.seconds) / slope if slope > 0 else None, unit="×"),
        Verdict("rows a second", n / many.seconds),
        *(_none(f"ids missing, repeated or misplaced, {case.label}", case["wrong_ids"]) for case in (many, few)),
        *(
            _none(f"stages whose progress does not end at n of n, {case.label}", _stages_off(case, rows))
            for case, rows in ((many, n), (few, small))
        ),
    ]
    notes = [
        f"`skpca run` from Parquet to Parquet, {N_FEATURES} float32 features and an int64 id, files of up to "
        f"{FILE_ROWS} rows as pyarrow writes them, {N_LANDMARKS} landmarks or as many as there are rows, budget.memory "
        f"{MEMORY}. Times and peaks are those of the whole command, start and imports included; the files were written "
        "just before, so that the page cache may hold them. Without the start means less the time of the command with "
        f"{min(sizes)} rows.",
        "Last lines of progress: " + "; ".join(_progress(case) for case in (many, few)) + ".",
    ]
    return Findings(list(found.values()), verdicts, notes)


def landmarks(settings: Settings) -> Findings:
    n, n_timed = settings.n, 10 * settings.n
    sizes = [max(1, n // 200) * 2**doublings for doublings in range(5)]
    tried = measure(
        {
            name: Subject("landmark_residuals", {"dataset": name, "n": n, "sizes": sizes, "n_seeds": N_SEEDS})
            for name in DATASETS
        },
        1,
    )
    m = min(N_LANDMARKS, n_timed // 100)
    timed = measure(
        {f"choice by {name}": Subject("landmark_times", {"n": n_timed, "m": m, "method": name}) for name in METHODS},
        max(settings.repeats, 3),
    )
    at = -2  # the last but one number of landmarks, where no method has reached rounding
    rest = {name: {method: mean(case["residuals"][method][at]) for method in METHODS} for name, case in tried.items()}
    verdicts = [
        _gain(rest, sizes[at], "decaying", "uniform", "rpcholesky", "≥", 10.0),
        _gain(rest, sizes[at], "clusters", "uniform", "rpcholesky", "≥", 10.0),
        _gain(rest, sizes[at], "flat", "rpcholesky", "uniform", "≤", 1.1),
        *(_gain(rest, sizes[at], name, "uniform", "kmeans++") for name in DATASETS),
        *(ratio(f"time of the {name} / the pass for the sums", case, _sums(case)) for name, case in timed.items()),
    ]
    chart = _chart(n, sizes, tried)
    return Findings(
        [*tried.values(), *timed.values()], verdicts, _reading(n_timed, m, sizes, at, rest, tried, timed), [chart]
    )


def _chart(n: int, sizes: list[int], tried: Mapping[str, Measurement]) -> Chart:
    panels = []
    for name, case in tried.items():
        curves = [
            Curve(method, sizes, list(map(mean, trials)), list(map(min, trials)), list(map(max, trials)))
            for method, trials in case["residuals"].items()
        ]
        panels.append(Panel(DATASETS[name].title, [*curves, Curve("best of any rank m", sizes, case["best"])]))
    alt = (
        f"Relative trace residual against the number of landmarks, {len(METHODS)} methods on {len(panels)} data sets "
        f"of {n} rows: mean of {N_SEEDS} seeds, and a band from the lowest to the highest."
    )
    return Chart("landmarks", alt, "landmarks m", "share of the trace left out", panels)


def _reading(
    n_timed: int,
    m: int,
    sizes: list[int],
    at: int,
    rest: Mapping[str, Mapping[str, float]],
    tried: Mapping[str, Measurement],
    timed: Mapping[str, Measurement],
) -> list[str]:
    def shares(name: str) -> str:
        return ", ".join(f"{rest[name][method]:.2g} by {method}" for method in METHODS)

    def beside_best(name: str) -> float:
        best = tried[name]["best"][at]
        return rest[name]["rpcholesky"] / best if best > 0 else float("inf")

    passes = [min(case["passes_of_choice"]["rpcholesky"]) for case in tried.values()]
    most = max(max(case["passes_of_choice"]["rpcholesky"]) for case in tried.values())
    taken = timed["choice by rpcholesky"]
    return [
        f"Rows: standard normal with 3 features, γ = {DATASETS['decaying'].gamma:g}; with {N_FEATURES} features, "
        f"γ = 1/{N_FEATURES}; and the first kind beside {N_CLUSTERS} clusters, {TIGHTNESS:g} times as wide, far away "
        "from it and from one another.",
        f"Trace residuals of the package's own landmarks in float64, means of {N_SEEDS} seeds. Left out with "
        f"{sizes[at]} landmarks: {shares('decaying')} on the decaying spectrum; {shares('flat')} on the flat one; "
        f"{shares('clusters')} beside the clusters.",
        "How to read it: where the spectrum decays, rpcholesky keeps up with the best approximation of any kind "
        f"({beside_best('decaying'):.2g} times what that leaves out; {beside_best('clusters'):.2g} times with the "
        "clusters), and the others fall behind the more landmarks there are, uniform ones the most. With the first few "
        "landmarks on a smooth kernel all methods are much alike. On a flat spectrum nothing helps: rpcholesky is no "
        "better than a uniform draw, which costs nothing, and k-means++ is ahead of both by a few per cent. Small "
        "clusters far away are missed by a uniform draw until it has enough landmarks in each by chance, which also "
        "makes it the one that depends most on the seed; k-means++ finds all of them and then goes by distances "
        "between rows, where rpcholesky goes by what is still missing.",
        "The price: uniform and k-means++ landmarks come from the sample of the first look. rpcholesky reads the rows "
        f"{min(passes)} to {most} times more here; at n = {n_timed} with {m} landmarks of {N_FEATURES} features it "
        f"made {taken['passes']} passes. The pass for the sums, which every fit makes, took "
        f"{taken['sums_seconds']:.3g} s there.",
    ]


def _gain(
    rest: Mapping[str, Mapping[str, float]],
    m: int,
    name: str,
    above: str,
    below: str,
    sense: str | None = None,
    bound: float | None = None,
) -> Verdict:
    kept = rest[name][below]
    measured = rest[name][above] / kept if kept > 0 else None
    return Verdict(f"{name}, {m} landmarks: left out by {above} / {below}", measured, sense, bound, "×")


def _sums(case: Measurement) -> Measurement:
    return Measurement("", [{**run, "seconds": run["sums_seconds"]} for run in case.runs])


def _a_row(case: Measurement, n: int) -> Measurement:
    return Measurement("", [{**run, "seconds": run["seconds"] / n} for run in case.runs])


def _none(what: str, count: int) -> Verdict:
    """A count that is wrong unless it is 0."""
    return Verdict(what, count, "≤", 0, is_correctness=True)


def _stages_off(case: Measurement, n: int) -> int:
    ended = [case["progress"].get(stage) == [n, n] for stage in STAGES]
    return len(ended) - sum(ended)


def _progress(case: Measurement) -> str:
    stages = ", ".join(f"{stage} {done} of {total}" for stage, (done, total) in case["progress"].items())
    return f"{case.label}: {stages}"


def _count(n: int) -> int:
    """Landmarks, fewer at sizes that are not meant to be measured."""
    return min(N_LANDMARKS, n // 4)
