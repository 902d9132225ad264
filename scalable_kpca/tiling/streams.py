"""The plan of a Nyström fit: landmarks, spans, reads of the rows, bytes; rates only estimate the seconds."""

from __future__ import annotations

from dataclasses import replace

from dask.utils import format_bytes

from scalable_kpca.errors import ConfigError, MemoryLimitError
from scalable_kpca.tiling.choices import LANDMARK_METHODS, check_choice, check_components, check_whole, choose_dtype
from scalable_kpca.tiling.costs import PROCESS_SECONDS
from scalable_kpca.tiling.footprint import BLOCK_ROWS, WAVE, Fixed, score_bytes, stream_bytes
from scalable_kpca.tiling.rates import MachineRates
from scalable_kpca.tiling.sizes import FEWEST_THREADS
from scalable_kpca.tiling.stream_plan import NystroemPlan

__all__ = ["plan_nystroem", "rows_of_batch"]

BATCH_BYTES = 16 * 2**20  # of rows that a task reads at a time, in float64
BATCH_ROWS = 2048  # at most
SMALLEST_SPAN, LARGEST_SPAN = 8192, 262_144  # rows of a task: half a second of work, and what a large row group allows
SCORE_BYTES = tuple(2**power for power in range(28, 21, -1))  # that the scores of two tasks a thread may take, tried
SPANS_A_THREAD = 2  # at least: fewer and larger ones decode less of a large row group in vain
TASKS_IN_TURN = 2  # that are given out for each thread of all processes: one runs, one is next
SUMS_IN_TURN = 4  # of sums, which take no memory of this process: what is waited for at the end is a smaller part
DECODE_BYTES = 64 * 2**20  # of a task that reads a file: pages and dictionaries of all columns, and what is kept freed
PIVOT_ROUNDS = 10  # passes of randomly pivoted Cholesky: 5 to 16


def plan_nystroem(
    n_samples: int,
    n_features: int,
    *,
    n_components: int | float | None = 10,
    n_landmarks: int = 1000,
    landmarks: str = "uniform",
    dtype: str = "auto",
    memory_limit: int,
    n_threads: int,
    n_workers: int = 1,
    resident_bytes: int = 0,
    rates: MachineRates | None = None,
    is_run: bool = False,
) -> NystroemPlan:
    """Plan a Nyström fit within a limit of memory.

    Parameters
    ----------
    n_samples, n_features : int
        Shape of the training rows.
    n_components : int, float or None
        Wanted components; a fraction of variance; or None for all.
    n_landmarks : int
        All rows where there are fewer.
    landmarks : str
        Method, or ``"given"``.
    dtype : {"auto", "float64", "float32"}
        Of kernel values; ``"auto"`` as for tiles.
    memory_limit : int
        Peak of the whole process, bytes.
    n_threads, n_workers : int
        Tasks at the same time in a process; processes, of which each keeps to `memory_limit`.
    resident_bytes : int
        Of the caller's rows that stay in memory.
    rates : MachineRates, optional
    is_run : bool
        Whether a process is started and files are read.

    Returns
    -------
    NystroemPlan
        Spans, batches and sums do not depend on the number of tasks at a time up to four, nor on rates: the same bits.

    Raises
    ------
    MemoryLimitError
        Naming the smallest limit that works, and the most landmarks that this one holds.
    ConfigError
        When there are fewer landmarks than components.
    """
    n_samples, n_features = check_whole("n_samples", n_samples), check_whole("n_features", n_features)
    m = min(check_whole("n_landmarks", n_landmarks), n_samples)
    if landmarks == "given":
        m = n_landmarks  # repeated rows, or rows of another source
    check_choice("dtype", dtype, ("auto", "float64", "float32"))
    check_choice("landmarks", landmarks, (*LANDMARK_METHODS, "given"))
    components = check_components(n_components)
    k = components if isinstance(components, int) else 0
    if k > m:
        raise ConfigError(
            f"n_components={k} needs at least as many landmarks, there are {m}; set n_landmarks to {k} or more."
        )
    resolved, reasons = choose_dtype(dtype, n_samples)
    rounds = PIVOT_ROUNDS if landmarks == "rpcholesky" else 0
    plan = NystroemPlan(
        n_samples=n_samples,
        n_features=n_features,
        n_components=k,
        n_landmarks=m,
        landmarks=landmarks,
        dtype=resolved,
        batch_rows=rows_of_batch(n_features),
        span_rows=0,
        n_spans=0,
        sum_wave=WAVE * -(-SUMS_IN_TURN * n_threads * check_whole("n_workers", n_workers) // WAVE),
        score_wave=0,
        n_threads=n_threads,
        n_workers=n_workers,
        row_passes=3 + rounds,
        kernel_values=2 * n_samples * m + rounds * n_samples * m // 2 + m * m,
        peak_memory=0,
        memory_limit=memory_limit,
        seconds=None,
        reasons=tuple(reasons),
    )
    fixed = Fixed(resident_bytes, DECODE_BYTES if is_run else 0)
    plan = _cut(plan, fixed)
    if plan.peak_memory > memory_limit:
        raise _too_large(plan, fixed)
    seconds = None if rates is None else _seconds(plan, rates, is_run=is_run)
    why = f"landmarks={landmarks}: {m} of {n_samples} rows, memory of {format_bytes(plan.peak_memory)} {_growth(plan)}"
    return replace(plan, seconds=seconds, reasons=(*plan.reasons, why))


def _growth(plan: NystroemPlan) -> str:
    return "whatever n, and 8 bytes a row" if plan.landmarks == "rpcholesky" else "whatever n"


def rows_of_batch(n_features: int) -> int:
    """Rows that a task reads at a time."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES // (8 * n_features)))


def _cut(plan: NystroemPlan, fixed: Fixed) -> NystroemPlan:
    """The plan with the largest spans that keep to its limit; where none do, with those that take hardly more than any.

    Spans are large enough to be worth a task, small enough to keep threads busy and the scores of a wave small. A task
    that takes a slice of a large row group decodes what comes before it too: larger ones are better there. One to four
    threads get the same ones, which decide the bits of the sums: those that are right for four.
    """
    threads = max(plan.n_threads, FEWEST_THREADS)
    alike = replace(plan, n_threads=threads, n_workers=max(1, plan.n_parallel // threads))
    cuts = [_cut_to(alike, fixed, room, TASKS_IN_TURN * threads) for room in SCORE_BYTES]
    limit = max(plan.memory_limit, min(cut.peak_memory for cut in cuts) * 17 // 16)
    rows = next(cut.span_rows for cut in cuts if cut.peak_memory <= limit)
    # this process has the scores of all others in its memory: of more of them, more, as far as its limit goes
    rooms = sorted({*SCORE_BYTES, *(alike.n_workers * room for room in SCORE_BYTES), 0}, reverse=True)
    most, least = max(WAVE, TASKS_IN_TURN * plan.n_parallel), TASKS_IN_TURN * plan.n_threads
    waves = [max(least, min(most, room // (rows * score_bytes(plan)))) for room in rooms]
    tried = [_with_spans(plan, fixed, rows, wave) for wave in waves]
    return next((cut for cut in tried if cut.peak_memory <= plan.memory_limit), tried[-1])


def _cut_to(plan: NystroemPlan, fixed: Fixed, room: int, wave: int) -> NystroemPlan:
    """The plan with spans so large that the scores of a wave of them fill the room, at most."""
    enough, scored = plan.n_samples // (SPANS_A_THREAD * plan.n_parallel), room // (wave * score_bytes(plan))
    rows = min(LARGEST_SPAN, max(SMALLEST_SPAN, enough), max(BLOCK_ROWS, scored)) // BLOCK_ROWS * BLOCK_ROWS
    return _with_spans(plan, fixed, rows, wave)


def _with_spans(plan: NystroemPlan, fixed: Fixed, rows: int, wave: int) -> NystroemPlan:
    cut = replace(plan, span_rows=rows, score_wave=wave, n_spans=-(-plan.n_samples // rows))
    return replace(cut, peak_memory=stream_bytes(cut, fixed))


def _largest_landmarks(plan: NystroemPlan, fixed: Fixed) -> int:
    """Most landmarks whose plan keeps to the limit of this one; 0 when not even one does."""
    fewest, most = 0, plan.n_landmarks
    while fewest < most:
        middle = (fewest + most + 1) // 2
        if _cut(replace(plan, n_landmarks=middle), fixed).peak_memory <= plan.memory_limit:
            fewest = middle
        else:
            most = middle - 1
    return fewest


def _too_large(plan: NystroemPlan, fixed: Fixed) -> MemoryLimitError:
    most = _largest_landmarks(plan, fixed)
    advice = f"raise memory_limit to {plan.peak_memory} bytes"
    if most >= max(1, plan.n_components) and plan.landmarks != "given":
        advice += f", or set n_landmarks to {most} or fewer"
    return MemoryLimitError(
        f"memory_limit={format_bytes(plan.memory_limit)} cannot hold a Nyström fit with {plan.n_landmarks} landmarks "
        f"of {plan.n_features} features, which needs {format_bytes(plan.peak_memory)}; {advice}.",
        plan.peak_memory,
    )


def _seconds(plan: NystroemPlan, rates: MachineRates, *, is_run: bool) -> float:
    n, m, d = plan.n_samples, plan.n_landmarks, plan.n_features
    gemm, threads = rates.gemm * (2 if plan.dtype == "float64" else 1), min(plan.n_parallel, plan.n_spans)
    entry = rates.entry + rates.feature * d
    read = rates.stage * n * d
    # the rate of products is that of CᵀC, where BLAS saves half; scores, and the updates of pivoted Cholesky
    summing = n * m * entry + gemm * 2 * n * m * m + read
    scoring = n * m * entry + gemm * 2 * n * m * max(plan.n_components, 1) + read
    pivots = gemm * 2 * n * m * m if plan.landmarks == "rpcholesky" else 0.0
    choosing = (plan.kernel_values - 2 * n * m) * entry + pivots + (plan.row_passes - 2) * read
    spread = 20 * m * m * d * 4 * gemm * 10 if plan.landmarks == "kmeans++" else 0.0
    solving = 5 * rates.lapack * m**3
    written = n * (8 * max(plan.n_components, 1)) / rates.flush if is_run else 0.0
    started = PROCESS_SECONDS + 2 * n * d * 4 / rates.read if is_run else 0.0
    passes = summing / threads + scoring / min(threads, plan.score_wave) + choosing / min(threads, WAVE)
    return passes + spread + solving + written + started
