"""Rows that measure whole fits."""

from __future__ import annotations

import tempfile
from pathlib import Path

import scalable_kpca
from tests.benchmarks.children import Subject, measure
from tests.benchmarks.findings import GIGABYTE, OURS, Findings, K, Settings, fit
from tests.benchmarks.verdicts import Verdict, agreement, exponent, ratio

__all__ = ["exact_20k", "exact_100k", "growth", "million", "naive_dask", "plan"]

DTYPES = ("float64", "float32")
ITERATIVE = {"eigen_solver": "block_krylov", "dtype": "float32"}  # the defaults at full size, also at a small one
MILLION, MILLION_LIMIT = "an exact job of `skpca run`, killed once", "6GiB"
IDLE_ROWS = 256  # of a fit whose memory is the interpreter's and the libraries'


def exact_20k(settings: Settings) -> Findings:
    n, small = settings.n, settings.n // 4
    found = measure(
        {
            OURS: fit(n),
            **{f"scikit-learn {s} {t}": _sklearn(n, s, t) for s in ("arpack", "randomized") for t in DTYPES},
        },
        settings.repeats,
    )
    few = f"{OURS}, n = {small}"
    dense = measure(
        {few: fit(small), **{f"scikit-learn dense {t}, n = {small}": _sklearn(small, "dense", t) for t in DTYPES}},
        settings.repeats,
    )
    ours, double, single = (
        found[name] for name in (OURS, "scikit-learn arpack float64", "scikit-learn arpack float32")
    )
    truth = double["eigenvalues"]
    verdicts = [
        ratio("time of scikit-learn arpack float64 / ours", double, ours, "≥", 6),
        ratio("time of scikit-learn arpack float32 / ours", single, ours, "≥", 2.5),
        ratio("peak memory of ours / scikit-learn arpack float64", ours, double, "≤", 0.5, of="peak_memory"),
        ratio("peak memory of ours / scikit-learn arpack float32", ours, single, of="peak_memory"),
        agreement("eigenvalues of ours beside scikit-learn arpack float64", ours["eigenvalues"], truth),
        agreement(
            "eigenvalues of ours beside scikit-learn dense float64, small n",
            dense[few]["eigenvalues"],
            dense[f"scikit-learn dense float64, n = {small}"]["eigenvalues"],
        ),
    ]
    for name, peer in found.items():
        if peer not in (ours, double, single):
            verdicts.append(ratio(f"time of {name} / ours", peer, ours))
        if peer not in (ours, double):
            # what is wrong with a peer in float32 is the peer's
            verdicts.append(agreement(f"eigenvalues of {name}", peer["eigenvalues"], truth, is_asserted=False))
    verdicts += [ratio(f"time of {name} / ours", peer, dense[few]) for name, peer in dense.items() if name != few]
    note = (
        f"The dense solver is compared at n = {small} and left out at n = {n}, where it holds several matrices of "
        f"{8e-9 * n * n:.2g} GB and its work is {(n // small) ** 3} times as much."
    )
    return Findings([*found.values(), *dense.values()], verdicts, [note])


def naive_dask(settings: Settings) -> Findings:
    def naive(dtype: str, *, hold: bool) -> Subject:
        return Subject("naive_dask", {"n": settings.n, "k": K, "dtype": dtype, "hold": hold})

    peers = {
        "naive Dask float64, matrix recomputed for each use": naive("float64", hold=False),
        "naive Dask float32, matrix recomputed for each use": naive("float32", hold=False),
        "naive Dask float32, matrix held in memory": naive("float32", hold=True),
    }
    found = measure({OURS: fit(settings.n), **peers}, settings.repeats)
    ours = found[OURS]
    verdicts = []
    for name in peers:
        bound = ("≥", 15.0) if name == next(iter(peers)) else ()
        verdicts.append(ratio(f"time of {name} / ours", found[name], ours, *bound))
        verdicts.append(ratio(f"peak memory of {name} / ours", found[name], ours, of="peak_memory"))
    verdicts += [
        agreement(f"eigenvalues beside {name}", ours["eigenvalues"], found[name]["eigenvalues"]) for name in peers
    ]
    note = (
        "The peer is what a short program does: kernel blocks by `blockwise`, centring by means, `svd_compressed` with "
        "two power iterations and 30 more columns, which is what brings it within 1e-6·λ₁. `compute=True` recomputes "
        "the matrix for each use and is Dask's advice for one larger than memory; `compute=False` holds all of it."
    )
    return Findings(list(found.values()), verdicts, [note])


def exact_100k(settings: Settings) -> Findings:
    bare = "bare threads"
    options = {"gram": "recompute", "memory_limit": "1GiB", **ITERATIVE}
    found = measure(
        {OURS: fit(settings.n, **options), bare: Subject("bare", {"n": settings.n, "k": K})}, settings.repeats
    )
    ours, yardstick = found[OURS], found[bare]
    verdicts = [
        Verdict("peak memory", ours.peak_memory / GIGABYTE, "≤", 1.0, " GB"),
        Verdict("passes, those of the certificate included", ours["passes"], "≤", 5),
        Verdict("largest residual", ours["residual"], "≤", 1e-6, "·λ₁"),
        ratio("time of ours / bare threads", ours, yardstick, "≤", 1.3),
        agreement("eigenvalues beside bare threads", ours["eigenvalues"], yardstick["eigenvalues"]),
    ]
    note = (
        f"Proven complete: {'yes' if ours['complete'] else 'no'}. The bare threads make no plan, no checks and no "
        f"certificate, and took {yardstick['passes']} passes with 16 columns."
    )
    return Findings(list(found.values()), verdicts, [note])


def plan(settings: Settings) -> Findings:
    n, scratch = settings.n, str(settings.scratch)
    # the rates of this machine on this day, for the plans of all cases
    scalable_kpca.plan(n, 64, dtype="float32", directory=scratch, calibrate="always")
    cases = {
        f"memory, n = {n}": fit(n, gram="memory", **ITERATIVE),
        f"recompute, n = {2 * n}": fit(2 * n, gram="recompute", memory_limit="1GiB", **ITERATIVE),
        f"zarr, n = {n}": fit(n, gram="zarr", scratch=scratch, **ITERATIVE),
    }
    found = measure(cases, settings.repeats)
    verdicts = []
    for name, case in found.items():
        planned, factor = case["planned_seconds"], None
        if planned:
            factor = max(planned / case.seconds, case.seconds / planned)
        verdicts += [
            Verdict(f"{name}: time off by a factor of", factor, "≤", 1.5, "×"),
            Verdict(f"{name}: peak memory / planned", case.peak_memory / case["planned_memory"], "≤", 1.0, "×"),
        ]
        if case["planned_passes"]:
            verdicts.append(Verdict(f"{name}: passes / planned", case["passes"] / case["planned_passes"], unit="×"))
    notes = [
        f"{name}: planned "
        + ("no time" if not case["planned_seconds"] else f"{case['planned_seconds']:.3g} s")
        + f" and {case['planned_memory'] / GIGABYTE:.2f} GB; measured {case.seconds:.3g} s and "
        + f"{case.peak_memory / GIGABYTE:.2f} GB."
        for name, case in found.items()
    ]
    return Findings(list(found.values()), verdicts, notes)


def growth(settings: Settings) -> Findings:
    sizes = [settings.n // 2**halvings for halvings in (4, 3, 2, 1, 0)]
    options = {"gram": "recompute", **ITERATIVE}
    idle = measure({f"n = {IDLE_ROWS}": fit(IDLE_ROWS, **options)}, 1)
    found = [
        measure({f"n = {n}": fit(n, **options)}, max(settings.repeats, 3 if n <= 20_000 else 1))[f"n = {n}"]
        for n in sizes
    ]
    base = next(iter(idle.values())).peak_memory
    memory = [case.peak_memory - base for case in found]
    verdicts = [
        Verdict("exponent of time in n", exponent(sizes, [case.seconds for case in found]), "≤", 2.1),
        Verdict(
            "exponent of time a pass", exponent(sizes, [case.seconds / case["passes"] for case in found]), "≤", 2.1
        ),
        Verdict("exponent of memory above the libraries'", exponent(sizes, memory), "≤", 1.1),
    ]
    steps = ", ".join(
        f"{n} → {2 * n}: {exponent((n, 2 * n), (a.seconds, b.seconds)):.2f}"
        for n, a, b in zip(sizes, found, found[1:], strict=False)
    )
    notes = [
        "The design names no target here: n²/2 kernel values a pass give 2, vectors of length n give 1, and a tenth is "
        "allowed for.",
        f"Exponent of time from size to size: {steps}.",
    ]
    return Findings([*idle.values(), *found], verdicts, notes)


def million(settings: Settings) -> Findings:
    with tempfile.TemporaryDirectory(dir=settings.scratch) as folder:
        files = str(Path(folder, "files"))
        measure({"writing the files": Subject("write_files", {"n": settings.n, "directory": files})}, 1)
        options = {"k": K, "files": files, "memory": MILLION_LIMIT, "output": str(Path(folder, "out"))}
        job = measure({MILLION: Subject("exact_run", {**options, "n": settings.n})}, 1)[MILLION]
    run, eigenvalues = job["run"], job["eigenvalues"]
    killed = job["killed_after"] is not None
    kept = settings.n / run["plan"]["tile_rows"]
    verdicts = [
        Verdict("time, with what the kill cost", job.seconds / 3600, "≤", 3.0, " h"),
        Verdict("peak memory of either process", job.peak_memory / GIGABYTE, "≤", 3.0, " GB"),
        Verdict("passes, those of the certificate included", run["n_passes"]),
        Verdict("largest residual", max(job["residuals"]) / eigenvalues[0], unit="·λ₁"),
        Verdict("finished passes that were made again after kill −9", int(killed) - run["resumed_passes"], "≤", 0,
                is_correctness=True),
        Verdict("ids missing, twice or out of place, and scores of NaN", job["wrong_ids"], "≤", 0, is_correctness=True),
    ]  # fmt: skip
    when = "the job ended before it was killed" if not killed else f"killed after {job['killed_after']:.0f} s"
    notes = [
        f"`skpca run` on Parquet files, {when}, with its first pass behind it, and given again: the second process "
        f"took {job['seconds_of_second_process']:.0f} s. Proven complete: {'yes' if job['complete'] else 'no'}.",
        f"The matrix that is never stored: {settings.n**2 / 2 * 4 / 1e12:.3g} TB of float32 on and above the diagonal, "
        f"in {run['plan']['n_tiles']} tiles of {run['plan']['tile_rows']} rows ({kept:.0f} in each direction).",
        f"Planned: {run['plan']['seconds']:.0f} s without a kill, {run['plan']['expected_passes']} passes, at most "
        f"{run['plan']['peak_memory'] / GIGABYTE:.2f} GB.",
        f"Explained variance {100 * job['explained_variance']:.2f} %; eigenvalues "
        + ", ".join(f"{value:.6g}" for value in eigenvalues) + ".",
    ]  # fmt: skip
    return Findings([job], verdicts, notes)


def _sklearn(n: int, eigen_solver: str, dtype: str) -> Subject:
    return Subject("sklearn", {"n": n, "k": K, "eigen_solver": eigen_solver, "dtype": dtype})
