"""What a page shows: the spectrum, the scores, the novelty of the rows, and how a solver came to its result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.markup import Html, figure, html, join, number, percent, section, spell, table
from scalable_kpca.plots import (
    MARKERS,
    PALETTE,
    SHADES,
    draw_cumulative,
    draw_hexagons,
    draw_histogram,
    draw_novelty,
    draw_residuals,
    draw_scatter,
    draw_scree,
    mark_of,
    svg_of,
)
from scalable_kpca.workflow.account import Account, Metrics
from scalable_kpca.workflow.colouring import LARGEST, Colouring, colouring_of
from scalable_kpca.workflow.score_sample import ScoreSample

__all__ = ["novelty", "passes", "scores", "spectrum"]

MOST_BARS = 100  # components in a picture of eigenvalues
MOST_LINES = 50  # and in the table
HEXAGON_ROWS = 5000  # from so many rows on hexagons count them
LEVEL, LINE = 0.95, "95 %"
QUANTILES = {"median": 0.5, "95 %": 0.95, "99 %": 0.99}


def spectrum(account: Account) -> Html:
    """Eigenvalues with their bounds, and what they explain together."""
    metrics = account.metrics
    if not metrics.n_components:
        return section("Spectrum", html("<p>There is no component: no eigenvalue is other than zero.</p>"))
    pictures = html('<div class="pair">$both</div>', both=join([_scree(metrics), _cumulative(metrics)]))
    header = ("component", "eigenvalue", _bound_name(metrics), "share", "together")
    together = list(accumulate(share or 0.0 for share in metrics.certificate.explained_variance_ratio))
    rows = [
        (
            number(place + 1),
            number(metrics.eigenvalues[place], f"eigenvalues.{place}"),
            number(metrics.certificate.eigenvalue_bounds[place], f"certificate.eigenvalue_bounds.{place}"),
            percent(
                metrics.certificate.explained_variance_ratio[place], f"certificate.explained_variance_ratio.{place}"
            ),
            percent(together[place]),
        )
        for place in range(min(MOST_LINES, metrics.n_components))
    ]
    more = metrics.n_components - len(rows)
    rest = html("<p>$more more are in metrics.json.</p>", more=number(more)) if more else Html()
    listed = html(
        '<details class="onpaper"><summary>Eigenvalues</summary>$rows$rest</details>',
        rows=table("Eigenvalues", header, rows),
        rest=rest,
    )
    return section("Spectrum", pictures, _beside_pca(metrics), listed)


def _beside_pca(metrics: Metrics) -> Html:
    """How much of these scores PCA has as well; empty where it is not known."""
    found = metrics.linear_share
    if found is None:
        return Html()
    leading = Html()
    if 1 < metrics.n_components < metrics.n_features:
        share, k = percent(found.leading, "linear_share.leading"), number(metrics.n_components)
        leading = html(" ($share from the first $k principal components)", share=share, k=k)
    return html(
        "<p>Beside PCA: linear functions of the features make $linear of the variance of these scores$leading. The "
        "rest, $rest, is what the kernel finds and PCA does not.</p>",
        linear=percent(found.linear, "linear_share.linear"),
        leading=leading,
        rest=percent(None if found.linear is None else 1 - found.linear),
    )


def _bound_name(metrics: Metrics) -> str:
    if metrics.method == "exact":
        return "± at most"
    return "larger by at most" if metrics.certificate.certified else "left out (no bound)"


def _scree(metrics: Metrics) -> Html:
    values, bounds = _array(metrics.eigenvalues)[:MOST_BARS], _array(metrics.certificate.eigenvalue_bounds)[:MOST_BARS]
    rounding = metrics.certificate.rounding
    below = bounds if rounding is None else np.full_like(bounds, rounding)
    drawing = svg_of(lambda axes: draw_scree(axes, values, below, bounds), "scree")
    finite = values[np.isfinite(values)]
    alt = f"Eigenvalues of {len(values)} components on a logarithmic axis, from {finite.max(initial=0):.4g} down."
    is_bound = metrics.certificate.certified
    words = (
        "Eigenvalues, largest first; the bars are what is certified of each."
        if is_bound
        else "Eigenvalues, largest first."
    )
    relative = np.divide(bounds, values, out=np.zeros_like(bounds), where=values > 0)
    if is_bound and np.isfinite(relative).all() and relative.max(initial=0) < 0.01:
        words += " They are too short to be seen: each is below 1 % of its eigenvalue."
    if metrics.n_components > MOST_BARS:
        words += f" The first {MOST_BARS} of {metrics.n_components}."
    return figure(drawing, alt, html("$words", words=words))


def _cumulative(metrics: Metrics) -> Html:
    together = np.cumsum(np.nan_to_num(_array(metrics.certificate.explained_variance_ratio)))
    known = metrics.certificate
    upper = known.explained_variance_bound if known.certified else None
    drawing = svg_of(lambda axes: draw_cumulative(axes, together, level=LEVEL, upper=upper), "cumulative")
    reached = int(np.searchsorted(together, LEVEL)) + 1
    words = f"{reached} reach {LINE}." if reached <= len(together) else f"They do not reach {LINE}."
    if upper is not None:
        words += " The line is a lower bound; the mark at its end is the upper one."
    alt = f"Variance that the first components explain together: {together[-1]:.2%} at the last; a line at {LINE}."
    return figure(drawing, alt, html("Variance that the first components explain together. $words", words=words))


def scores(account: Account, sample: ScoreSample, colour: str | None) -> Html:
    """Rows in the plane of the first two components, or along the first one."""
    title, note = "Scores", Html()
    if account.is_update:
        note = html(
            "<p>These are the scores of the $n rows that this update has added, by the model of all rows; the scores "
            "of earlier partitions are in the runs that added them, by the models of their day.</p>",
            n=number(sample.n_rows),
        )
    shown = sample.drawable
    if not sample.n_rows or not sample.scores.shape[1] or not shown.any():
        return section(title, note, html("<p>There are no scores to be shown.</p>"))
    points = sample.scores[shown]
    words = _of_rows(sample, int(shown.sum()))
    if points.shape[1] == 1:
        drawing = svg_of(lambda axes: draw_histogram(axes, points[:, 0]), "scores")
        return section(
            title,
            note,
            figure(
                drawing,
                f"Histogram of the only component: {words}.",
                html("Scores on the only component; $w.", w=words),
            ),
        )
    return section(title, note, _plane(points, sample, colour, words))


def _plane(points: NDArray[np.float64], sample: ScoreSample, colour: str | None, words: str) -> Html:
    few = len(points) < HEXAGON_ROWS
    values = [value for value, here in zip(sample.values, sample.drawable, strict=True) if here] if colour else []
    paint = colouring_of(values, 20 if few else len(PALETTE)) if values else Colouring()
    draw = draw_scatter if few else draw_hexagons
    drawing = svg_of(
        lambda axes: draw(axes, points[:, 0], points[:, 1], groups=paint.groups, shades=paint.shades),
        "scores",
        height=4.2,
    )
    what = "each mark is a row" if few else "each hexagon counts rows, the fuller the stronger"
    how = "" if few else ", that of most of its rows" if paint.groups is not None else ", the mean of its rows"
    meaning = html("; its colour is <bdi>$colour</bdi>$how", colour=colour, how=how) if values else Html()
    caption = html("$w; $what$meaning. $legend", w=words, what=what, meaning=meaning, legend=_legend(paint, marked=few))
    coloured = f", coloured by {colour}" if values else ""
    return figure(drawing, f"Scores on the first two components{coloured}: {words}.", caption)


def _of_rows(sample: ScoreSample, n_shown: int) -> str:
    if len(sample.scores) < sample.n_rows:
        text = f"{spell(n_shown)} rows, drawn at random from {spell(sample.n_rows)}"
    else:
        text = "1 row" if n_shown == 1 else f"{spell(n_shown)} rows"
    hidden = len(sample.scores) - n_shown
    return f"{text} ({hidden} more are not finite)" if hidden else text


def _legend(paint: Colouring, *, marked: bool) -> Html:
    """Names and colours of the groups, and the markers where they are drawn with them."""
    if paint.shades is not None:
        stops = ", ".join(SHADES)
        bar = Html(f'<span class="ramp" style="background: linear-gradient(to right, {stops})"></span>')
        low, high = number(paint.low), number(paint.high)
        ends = {"low": html("<span>≤ $low</span>", low=low), "high": html("<span>≥ $high</span>", high=high)}
        return html('<span class="legend">$low $bar $high</span>', bar=bar, **ends)
    if len(paint.names) < 2:
        return html("It is <bdi>$name</bdi> everywhere.", name=paint.names[0]) if paint.names else Html()
    letters = [MARKERS[mark_of(place)[1] if marked else "o"] for place in range(len(paint.names))]
    counts = np.bincount(np.empty(0, np.int64) if paint.groups is None else paint.groups, minlength=len(paint.names))
    entries = (
        html(
            '<li><span class="c$colour" aria-hidden="true">$letter</span> <bdi>$name</bdi> '
            "<small>($count)</small></li>",
            colour=place % len(PALETTE),
            letter=letters[place],
            name=name,
            count=number(int(counts[place])),
        )
        for place, name in enumerate(paint.names)
    )
    return html('<ul class="legend">$entries</ul>', entries=join(entries))


def novelty(sample: ScoreSample) -> Html:
    """Histogram of the novelty of the rows, where it was asked for."""
    if sample.novelty is None:
        return Html()
    values = sample.novelty[np.isfinite(sample.novelty) & (np.abs(sample.novelty) < LARGEST)]
    if not len(values):
        return section("Novelty", html("<p>There is no novelty to be shown.</p>"))
    marked = {name: float(np.quantile(values, level)) for name, level in QUANTILES.items()}
    drawing = svg_of(lambda axes: draw_novelty(axes, values, marked), "novelty")
    listed = join((html("$name $value", name=name, value=number(value)) for name, value in marked.items()), ", ")
    caption = html(
        "How far rows are from the components in feature space, squared; $n rows$drawn. Quantiles: $listed; the "
        "largest of all is $most.",
        n=number(len(values)),
        drawn=html(", drawn at random from $all", all=number(sample.n_rows))
        if len(sample.novelty) < sample.n_rows
        else "",
        listed=listed,
        most=number(sample.most_novel),
    )
    words = ", ".join(f"{name} {value:.4g}" for name, value in marked.items())
    alt = f"Histogram of the novelty of the rows on a logarithmic axis; {words}."
    return section("Novelty", figure(drawing, alt, caption))


def passes(account: Account) -> Html:
    """How the residuals of the wanted pairs fell, where a solver has said it."""
    metrics, measured = account.metrics, [_array(norms) for norms in account.run.residuals_by_pass if norms]
    first = metrics.eigenvalues[0] if metrics.eigenvalues else None
    if not measured or first is None or not 1 / LARGEST < first < LARGEST:
        return Html()
    largest, smallest = (np.array(list(_ends(measured, end))) / first for end in (np.nanmax, np.nanmin))
    drawing = svg_of(lambda axes: draw_residuals(axes, largest, smallest), "passes")
    caption = html(
        "Residual norms of the wanted pairs over the first eigenvalue, each time that the solver has measured them, in "
        "$n passes.",
        n=number(metrics.n_passes, "n_passes"),
    )
    alt = f"Largest residual norm over the first eigenvalue: {largest[0]:.2g} at first, {largest[-1]:.2g} at last."
    return section("Passes", figure(drawing, alt, caption))


def _ends(measured: list[NDArray[np.float64]], end: object) -> Iterator[float]:
    for norms in measured:
        finite = norms[np.isfinite(norms)]
        yield float(end(finite)) if len(finite) and callable(end) else float("nan")


def _array(values: list[float | None]) -> NDArray[np.float64]:
    """Numbers as they can be drawn: NaN for those that are not finite, or beyond every axis."""
    found = np.array([np.nan if value is None else value for value in values], np.float64)
    return np.where(np.abs(found) < LARGEST, found, np.nan)
