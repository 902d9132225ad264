"""Pictures show the numbers that they are given, and nothing that is not drawn from them."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from scalable_kpca import plots
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
