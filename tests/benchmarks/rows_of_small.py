"""The row about small data, which is the common case."""

from __future__ import annotations

from tests.benchmarks.children import Measurement, Subject, measure
from tests.benchmarks.findings import Findings, Settings
from tests.benchmarks.verdicts import Verdict, agreement

__all__ = ["small"]

ALLOWED = 5.0  # milliseconds: a few
COMPONENTS, KERNELS = (2, 10), ("rbf", "linear")


def small(settings: Settings) -> Findings:
    sizes = [settings.n // share for share in (10, 4, 2, 1)]
    cases = {
        f"n = {n}, {kernel}, k = {k}": Subject("small_fits", {"n": n, "k": k, "kernel": kernel})
        for n in sizes
        for kernel in KERNELS
        for k in COMPONENTS
    }
    fits = measure(cases, 1)
    started = measure({"imports": Subject("imports", {"rounds": settings.repeats})}, 1)["imports"]
    cpu = started["cpu"]
    both = cpu["scikit-learn and dask"]
    verdicts = [
        _excess("fit", fits),
        _excess("transform", fits),
        Verdict(
            "CPU of `from scalable_kpca import KernelPCA` / scikit-learn and dask", cpu["estimator"] / both, "≤", 1.5
        ),
        Verdict("CPU of `import scalable_kpca` / scikit-learn and dask", cpu["package"] / both, "≤", 1.5),
        Verdict("CPU of `skpca --help`", cpu["help"], "≤", 0.3, " s"),
        *(verdict for label, found in fits.items() for verdict in _of_case(label, found)),
    ]
    note = (
        "Times are the shortest of 25 rounds or more, both programs in turn in one process. All fits are complete: "
        f"{all(found['complete'] for found in fits.values())}."
    )
    return Findings([*fits.values(), started], verdicts, [note])


def _excess(what: str, fits: dict[str, Measurement]) -> Verdict:
    worst = max(1e3 * (found[what] - found[f"sklearn_{what}"]) for found in fits.values())
    return Verdict(f"most that a {what} takes beyond scikit-learn's", worst, "≤", ALLOWED, " ms")


def _of_case(label: str, found: Measurement) -> list[Verdict]:
    ratios = [
        Verdict(
            f"{label}: {what}, {1e3 * found[what]:.3g} ms / {1e3 * found[f'sklearn_{what}']:.3g} ms",
            found[what] / found[f"sklearn_{what}"],
            unit="×",
        )
        for what in ("fit", "transform")
    ]
    values = agreement(f"{label}: eigenvalues", found["eigenvalues"], found["sklearn_eigenvalues"])
    return [*ratios, values]
