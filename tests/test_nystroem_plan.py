"""The plan of a Nyström fit: its numbers are accepted, it is the same everywhere, and it says why it was made."""

import json
import re

import numpy as np
import pytest

from scalable_kpca import plan
from scalable_kpca.errors import ConfigError, MemoryLimitError
from scalable_kpca.kernels import RBF, Linear, kernel_block
from scalable_kpca.planning.advice import advise_landmarks, residual_curve
from scalable_kpca.report import plan_lines
from scalable_kpca.tiling import NystroemPlan, plan_nystroem


def planned(n=1_000_000, d=64, **options):
    asked = {"method": "nystroem", "memory_limit": "2GiB", "n_jobs": 2}
    return plan(n, d, **{**asked, **options})


def test_more_landmarks_features_or_components_never_take_less_memory():
    for name, values in (("n_landmarks", (10, 100, 1000, 3000)), ("n_components", (1, 10, 100, 400))):
        peaks = [planned(**{name: value}).peak_memory for value in values]
        assert peaks == sorted(peaks), name
    peaks = [planned(d=d).peak_memory for d in (1, 64, 784, 5000)]
    assert peaks == sorted(peaks)


def test_memory_does_not_depend_on_the_number_of_rows():
    small, large = planned(1_000_000), planned(1_000_000_000)
    assert large.peak_memory <= small.peak_memory + 256 * 2**20  # of larger spans, whose scores are bounded
    assert planned(10_000_000).peak_memory == large.peak_memory


def test_what_tasks_bring_beside_their_scores_is_counted():
    made = planned(10**7, 240, n_jobs=1, n_workers=1000, memory_limit="8GiB", n_components=10)
    waiting = made.score_wave + made.n_threads
    assert waiting > 1000
    assert made.peak_memory >= waiting * ((8 * 10 + 64) * made.span_rows + 8 * 240 * 250)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky"])
@pytest.mark.parametrize("is_run", [False, True])
@pytest.mark.parametrize(("n", "d", "m"), [(5000, 3, 2000), (10_000_000, 64, 3000), (100_000, 2000, 500)])
def test_numbers_of_a_refusal_are_accepted(n, d, m, is_run, landmarks):
    options = {"n_landmarks": m, "landmarks": landmarks, "is_run": is_run}
    with pytest.raises(MemoryLimitError) as caught:
        planned(n, d, memory_limit=300 * 2**20, **options)
    named = int(re.search(r"raise memory_limit to (\d+) bytes", str(caught.value))[1])
    assert planned(n, d, memory_limit=named, **options).peak_memory == named
    with pytest.raises(MemoryLimitError):
        planned(n, d, memory_limit=named - 1, **options)
    fewer = re.search(r"n_landmarks to (\d+) or fewer", str(caught.value))
    if fewer:
        limit = {"memory_limit": 300 * 2**20}
        assert planned(n, d, **{**options, **limit, "n_landmarks": int(fewer[1])}).peak_memory <= 300 * 2**20
        with pytest.raises(MemoryLimitError):
            planned(n, d, **{**options, **limit, "n_landmarks": int(fewer[1]) + 1})


def test_one_to_four_threads_have_the_same_tasks_and_rates_change_none():
    found = [planned(n_jobs=threads, memory_limit="4GiB") for threads in (1, 2, 3, 4)]
    assert len({(each.span_rows, each.batch_rows, each.dtype) for each in found}) == 1
    tight = {"n_landmarks": 220, "memory_limit": "850MiB", "is_run": True}
    assert len({planned(140_638_735, 704, n_jobs=threads, **tight).span_rows for threads in (1, 2, 3, 4)}) == 1
    bare = plan_nystroem(1_000_000, 64, memory_limit=2**31, n_threads=2)
    assert bare.seconds is None
    assert (bare.span_rows, bare.peak_memory) == (planned().span_rows, planned().peak_memory)


def test_four_tasks_at_a_time_are_the_same_in_any_number_of_processes():
    found = [planned(n_jobs=threads, n_workers=workers) for threads, workers in ((4, 1), (2, 2), (1, 4), (1, 1))]
    assert len({(each.span_rows, each.batch_rows, each.sum_wave) for each in found}) == 1


def test_many_workers_get_tasks_for_all_their_threads_as_far_as_memory_goes():
    few, many = (planned(10**9, n_jobs=4, n_workers=workers, memory_limit="16GiB") for workers in (1, 100))
    assert many.n_spans >= 2 * many.n_parallel == 800
    assert many.sum_wave >= 800 > few.sum_wave
    assert few.score_wave < many.score_wave <= 800
    assert many.peak_memory <= 16 * 2**30
    assert many.seconds < few.seconds / 20
    assert "4 in each of 100 processes" in "\n".join(plan_lines(many))
    tight = planned(10**9, n_jobs=4, n_workers=100, memory_limit="2GiB")
    assert tight.peak_memory <= 2 * 2**30
    assert tight.score_wave < many.score_wave


@pytest.mark.parametrize(("n", "memory", "method"), [
    (20_000, "1GiB", "exact"),
    (100_000, "1GiB", "exact"),
    (1_000_000, "8GiB", "nystroem"),
    (10_000_000, "1GiB", "nystroem"),
    (1_000_000_000, "1GiB", "nystroem"),
    (200_000, "500MiB", "nystroem"),
])  # fmt: skip
def test_auto_is_exact_as_long_as_that_is_affordable_and_says_so(n, memory, method):
    found = plan(n, 64, method="auto", memory_limit=memory, n_jobs=2)
    assert found.method == method
    assert found.reasons[0].startswith(f"method={method}: ")
    # whatever was measured
    assert plan(n, 64, method="auto", memory_limit=memory, n_jobs=2).method == method


def test_auto_is_exact_for_a_precomputed_kernel_that_fits():
    assert plan(1000, 1000, method="auto", kernel="precomputed", memory_limit="1GiB").method == "exact"


def test_more_landmarks_than_rows_are_all_rows_and_fewer_than_components_are_refused():
    assert planned(300).n_landmarks == 300
    with pytest.raises(ConfigError, match="n_landmarks to 20"):
        planned(n_components=20, n_landmarks=19)


def test_plan_survives_json_and_is_told_in_lines():
    found = planned()
    fields = json.loads(json.dumps(found.to_json()))
    assert fields.pop("method") == "nystroem"
    assert NystroemPlan(**{**fields, "reasons": tuple(fields["reasons"])}) == found
    text = "\n".join(plan_lines(found))
    for word in ("Nyström", "1000, uniform", "because", "at most"):
        assert word in text


# ---------------------------------------------------------------- advice


def rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 0.3, d)


def dense_residual(kernel, landmarks, held):
    W, C = kernel_block(kernel, landmarks, landmarks, diagonal=True), kernel_block(kernel, held, landmarks)
    diagonal = kernel.diagonal(held)
    return (diagonal - np.einsum("ij,ji->i", C, np.linalg.pinv(W, 1e-12, hermitian=True) @ C.T)).sum() / diagonal.sum()


@pytest.mark.parametrize("kernel", [RBF(0.5), RBF(0.05), Linear()])
def test_one_factorisation_gives_the_residual_of_every_number_of_landmarks(kernel):
    landmarks, held = rows(60, 4), rows(80, 4, seed=1)
    curve = residual_curve(kernel, landmarks, held)
    assert curve.shape == (60,)
    assert (np.diff(curve) <= 1e-12).all()
    for m in (1, 2, 17, 60):
        assert curve[m - 1] == pytest.approx(dense_residual(kernel, landmarks[:m], held), abs=1e-8)


def test_repeated_landmarks_explain_nothing_more():
    landmarks, held = rows(20, 4), rows(50, 4, seed=1)
    twice = residual_curve(RBF(0.5), np.repeat(landmarks, 2, axis=0), held)
    assert np.abs(twice[1::2] - residual_curve(RBF(0.5), landmarks, held)).max() <= 1e-10
    assert residual_curve(Linear(), np.zeros((3, 2)), np.zeros((4, 2))).tolist() == [0, 0, 0]


def test_one_row_and_more_landmarks_than_rows_need_no_advice_beyond():
    assert advise_landmarks(Linear(), rows(1, 4), n_landmarks=1).predicted == 0.0
    assert advise_landmarks(RBF(0.5), rows(300, 4), n_landmarks=300, n_samples=300).predicted == 0.0


def test_advice_is_read_off_where_the_sample_reaches_and_extrapolated_beyond():
    kernel, sample = RBF(0.5), rows(1200, 4)
    inside, beyond = (advise_landmarks(kernel, sample, n_landmarks=m) for m in (300, 5000))
    assert inside.n_landmarks == (125, 250, 500)
    assert not inside.is_extrapolated
    assert inside.residuals[1] > inside.predicted > inside.residuals[2]
    assert beyond.is_extrapolated
    assert 0 < beyond.predicted < beyond.residuals[2]
    assert "extrapolated" in beyond.lines()[-1]
    held = rows(4000, 4, seed=5)
    assert inside.residuals[2] == pytest.approx(dense_residual(kernel, rows(500, 4, seed=6), held), rel=0.3)
