"""Pictures show the numbers that they are given, and nothing that is not drawn from them."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

from scalable_kpca import KernelPCA, plots
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.plots.canvas import INK, PALETTE


@pytest.fixture
def axes():
    return Figure().add_subplot()


def test_bars_of_a_scree_reach_as_far_as_is_certified(axes):
    values, below, above = (
        np.array([8.0, 4.0, 2.0, 0.0]),
        np.array([1.0, 0.5, 5.0, 1.0]),
        np.array([2.0, 0.0, 1.0, 1.0]),
    )
    plots.draw_scree(axes, values, below, above)
    (bars,) = axes.containers[0].lines[2]
    spans = [(low, high) for (_, low), (_, high) in bars.get_segments()]
    # the last interval reaches below zero, where a logarithmic axis has no place; a zero has none at all
    np.testing.assert_allclose(spans, [(7, 10), (3.5, 4), (0.2, 3)])
    assert axes.get_yscale() == "log"


@pytest.mark.parametrize("values", [np.array([]), np.zeros(3), np.array([np.nan, 1.0]), np.full(80, 2.0)])
def test_any_spectrum_has_a_picture(values):
    zeros = np.zeros(len(values))
    svg = plots.svg_of(lambda axes: plots.draw_scree(axes, values, zeros, zeros), "s")
    assert svg.startswith("<svg")
    assert "http" not in svg


def test_the_line_of_the_wanted_share_is_where_it_is(axes):
    plots.draw_cumulative(axes, np.array([0.5, 0.7]), level=0.95, upper=0.8)
    curve, reach, line = axes.lines
    assert curve.get_ydata().tolist() == [0.5, 0.7]
    assert list(reach.get_ydata()) == [0.7, 0.8]
    assert list(line.get_ydata()) == [0.95, 0.95]


@pytest.mark.parametrize("draw", [plots.draw_scatter, plots.draw_hexagons])
@pytest.mark.parametrize("n_rows", [1, 2, 700])
def test_rows_in_one_place_and_rows_without_a_shade_have_pictures(draw, n_rows):
    x = np.full(n_rows, 3.0)
    plots.svg_of(lambda axes: draw(axes, x, x), "s")
    plots.svg_of(lambda axes: draw(axes, x, x, groups=np.arange(n_rows) % 8), "s")
    plots.svg_of(lambda axes: draw(axes, x, x, shades=np.full(n_rows, np.nan)), "s")


def test_a_hexagon_has_the_colour_of_most_of_its_rows_and_is_the_fainter_the_emptier(axes):
    x = np.array([0.0] * 9 + [10.0] * 3)
    groups = np.array([1] * 5 + [0] * 4 + [2] * 3)
    plots.draw_hexagons(axes, x, np.zeros(12), groups=groups)
    (cells,) = axes.collections
    cells.update_scalarmappable()
    assert [to_hex(colour) for colour in cells.get_facecolor()] == [PALETTE[1], PALETTE[2]]
    full, empty = cells.get_alpha()
    assert full == 1.0 > empty > 0.3


def test_every_group_has_a_look_of_its_own(axes):
    groups = np.arange(32)
    plots.draw_scatter(axes, groups.astype(float), np.zeros(32), groups=groups)
    looks = {(to_hex(marks.get_facecolor()[0]), marks.get_paths()[0].vertices.tobytes()) for marks in axes.collections}
    assert len(looks) == 32


def test_the_first_four_groups_differ_in_colour_and_in_marker():
    colours, markers = zip(*(plots.mark_of(group) for group in range(4)), strict=True)
    assert len(set(colours)) == len(set(markers)) == 4


def test_directions_are_counted_from_1_as_the_bars_of_their_eigenvalues(axes):
    plots.draw_directions(axes, np.zeros(2), np.eye(2))
    assert [line.get_label() for line in axes.lines] == ["component 1", "component 2"]
    assert axes.lines[0].get_linewidth() > axes.lines[1].get_linewidth()


def luminance(colour):
    shares = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", plots.SHADES)
def test_shades_are_seen_on_white_and_on_black(colour):
    assert (1.05) / (luminance(colour) + 0.05) > 2
    assert (luminance(colour) + 0.05) / 0.05 > 2


def test_colours_of_a_drawing_are_those_of_its_page():
    svg = plots.svg_of(lambda axes: plots.draw_residuals(axes, np.array([1.0, 0.1]), np.array([0.5, 0.0])), "s")
    assert INK not in svg
    assert f"var(--c0, {PALETTE[0]})" in svg
    assert svg.count("<svg") == 1


MODEL_ROWS = np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture(scope="module")
def model():
    return KernelPCA(3, kernel="rbf").fit(MODEL_ROWS)


def test_contours_are_the_scores_of_the_plane(axes, model):
    plots.draw_component(axes, model, 1, MODEL_ROWS, resolution=30)
    filled = axes.collections[0]
    reach = np.abs(model.transform(MODEL_ROWS)[:, 1]).max()
    # of the plane around the rows: levels on both sides of zero, as far as any row has a score
    assert filled.levels[0] == -filled.levels[-1]
    assert filled.levels[-1] >= reach
    low, high = axes.get_xlim()
    assert low < MODEL_ROWS[:, 0].min() < MODEL_ROWS[:, 0].max() < high


def test_the_threshold_of_novelty_is_a_line_of_its_level(axes, model):
    threshold = model.novelty_threshold(0.9)
    plots.draw_novelty_map(axes, model, MODEL_ROWS, threshold=threshold, resolution=30)
    assert any(list(found.levels) == [threshold] for found in axes.collections if hasattr(found, "levels"))


def test_components_as_images_are_as_strong_as_their_largest_entry(axes):
    images = np.array([[[[1.0, -4.0]], [[0.5, 0.25]]]])
    plots.draw_images(axes, images, signed=True, column_labels=["a", "b"])
    shown = [np.asarray(image.get_array()) for image in axes.images]
    np.testing.assert_array_equal(shown, [[[0.25, -1.0]], [[1.0, 0.5]]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]


def test_what_landmarks_leave_out_is_drawn_where_it_is_above_zero(axes):
    plots.draw_landmark_residuals(axes, [10, 20, 40], {"uniform": [0.5, 0.2, 0.1], "rpcholesky": [0.1, 0.0, np.nan]})
    assert [line.get_xdata().tolist() for line in axes.lines] == [[10, 20, 40], [10]]
    assert axes.get_yscale() == "log"


def test_pca_and_kernel_pca_stand_side_by_side(axes):
    right = Figure().add_subplot()
    plots.draw_side_by_side(axes, right, MODEL_ROWS, -MODEL_ROWS, groups=np.arange(40) % 2)
    assert (axes.get_title(), right.get_title()) == ("PCA", "kernel PCA")
    assert len(axes.collections) == len(right.collections) == 2


@pytest.mark.parametrize("values", [[], [np.nan, np.inf], [np.nan, 1.0, 2.0]])
def test_what_has_no_place_is_left_out_of_every_picture(values):
    values, zeros = np.array(values), np.zeros(len(values))
    for draw in (
        lambda axes: plots.draw_scatter(axes, values, zeros),
        lambda axes: plots.draw_hexagons(axes, values, zeros, groups=zeros.astype(int)),
        lambda axes: plots.draw_histogram(axes, values),
        lambda axes: plots.draw_novelty(axes, values, {"99 %": 1.0}),
        lambda axes: plots.draw_landmark_residuals(axes, values, {"uniform": values}),
        lambda axes: plots.draw_residuals(axes, values, values),
    ):
        assert plots.svg_of(draw, "s").startswith("<svg")
    assert plots.svg_of(lambda axes: plots.draw_images(axes, np.full((1, 2, 3, 3), np.nan)), "s")
    assert plots.svg_of(lambda axes: plots.draw_landmark_residuals(axes, [], {}), "s")


def test_one_row_without_a_place_does_not_empty_the_hexagons(axes):
    x = np.append(np.arange(20.0), np.nan)
    plots.draw_hexagons(axes, x, x, groups=np.arange(21) % 3)
    assert len(axes.collections[0].get_array()) == 20


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda axes, _: plots.draw_scatter(axes, [1.0, 2.0], [1.0]), r"x has shape \(2,\), y has shape \(1,\)"),
        (lambda axes, _: plots.draw_scatter(axes, [1.0], [1.0], groups=[0, 1]), r"groups has shape \(2,\).*1 rows"),
        (lambda axes, _: plots.draw_scatter(axes, [1.0], [1.0], groups=[0.5]), "dtype float64; a whole number"),
        (lambda axes, _: plots.draw_hexagons(axes, [1.0], [1.0], groups=[-1]), "a whole number ≥ 0"),
        (lambda axes, _: plots.draw_hexagons(axes, [1.0], [1.0], shades=[0.1, 0.2]), r"shades has shape \(2,\)"),
        (lambda axes, _: plots.draw_side_by_side(axes, axes, MODEL_ROWS, MODEL_ROWS[:5]), "of the same rows"),
        (lambda axes, _: plots.draw_side_by_side(axes, axes, MODEL_ROWS[:, :1], MODEL_ROWS[:, :1]), "two or more"),
        (lambda axes, _: plots.draw_directions(axes, [0, 0, 0], np.eye(3)), r"a mean of shape \(3,\)"),
        (lambda axes, _: plots.draw_directions(axes, [0, 0], np.zeros((2, 1))), "that are not zero"),
        (lambda axes, _: plots.draw_scree(axes, [1.0], [0.0], []), r"above has shape \(0,\)"),
        (lambda axes, _: plots.draw_landmark_residuals(axes, [1], {"uniform": [1, 2]}), r"uniform has shape \(2,\)"),
        (lambda axes, _: plots.draw_images(axes, np.zeros((2, 2))), r"\(rows, columns, height, width\) is needed"),
        (lambda axes, _: plots.draw_images(axes, np.zeros((2, 1, 2, 2)), row_labels=["a"]), "1 labels for 2"),
        (lambda axes, model: plots.draw_component(axes, model, 3, MODEL_ROWS), "component=3 of 3; count from 0"),
        (lambda axes, model: plots.draw_component(axes, model, -1, MODEL_ROWS), "component=-1"),
        (lambda axes, model: plots.draw_component(axes, model, 0, np.eye(3)), r"shape \(3, 3\) lie in no plane"),
        (lambda axes, model: plots.draw_component(axes, model, 0, np.empty((0, 2))), "m ≥ 1"),
        (lambda axes, model: plots.draw_component(axes, model, 0, MODEL_ROWS, resolution=1), "resolution=1"),
        (lambda axes, model: plots.draw_novelty_map(axes, model, [[0, 0], [np.nan, 1]]), r"row 1 is \[nan, 1.0\]"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(axes, model, draw, words):
    with pytest.raises(InvalidInputError, match=words):
        draw(axes, model)


def test_an_estimator_that_was_not_fitted_has_no_plane(axes):
    with pytest.raises(NotFittedError):
        plots.draw_component(axes, KernelPCA(2), 0, MODEL_ROWS)
