"""What a page says in words: what ran, what is certified, and where it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scalable_kpca.markup import Html, facts, html, join, number, percent, section, shorten
from scalable_kpca.workflow.account import Account

__all__ = ["certificate", "environment", "headline", "what_ran"]

MOST_CONFIG = 20_000


def headline(account: Account) -> Html:
    """What was done and what came out, in two sentences."""
    metrics = account.metrics
    kind = "Exact" if metrics.method == "exact" else "Nyström (approximate)"
    low = percent(metrics.explained_variance, "explained_variance")
    high = metrics.certificate.explained_variance_bound
    if not metrics.n_components:
        explained = html("No eigenvalue is other than zero: there are no components.")
    elif high is None:
        explained = html("$k components explain $low of the variance.", k=_count(account), low=low)
    elif metrics.certificate.certified:
        high_text = percent(high, "certificate.explained_variance_bound")
        explained = html(
            "$k components explain $low to $high of the variance.", k=_count(account), low=low, high=high_text
        )
    else:
        explained = html("$k components, of which nothing is certified.", k=_count(account))
    return html("$kind kernel PCA, $kernel. $explained", kind=kind, kernel=_kernel(account), explained=explained)


def what_ran(account: Account) -> Html:
    """Input, method and configuration."""
    metrics, run = account.metrics, account.run
    plan = run.plan
    rows: list[tuple[str, Any]] = [
        ("rows", number(metrics.n_samples, "n_samples")),
        ("features", number(metrics.n_features, "n_features")),
        ("components", _count(account)),
        ("kernel", _kernel(account)),
        ("method", metrics.method),
        ("solver", metrics.solver if metrics.method == "exact" else None),
        ("kernel values", metrics.tile_dtype),
        ("home of the tiles", None if plan is None else plan.gram),
        ("landmarks", _landmarks(account)),
        ("source", shorten(run.config.source.uri)),
        ("finished", _moment(run.finished)),
        ("run", html("<code>$name</code>", name=account.fingerprint)),
    ]
    if account.is_update:
        rows += [
            ("update of", html("<code>$name</code>", name=shorten(run.previous or ""))),
            ("base", html("<code>$name</code>", name=shorten(run.base or ""))),
            ("added", _partitions(len(run.added))),
            ("withdrawn", _partitions(len(run.withdrawn))),
        ]
    text = shorten(account.config, MOST_CONFIG)
    config = html("<details><summary>Configuration</summary><pre>$text</pre></details>", text=text)
    return section("What ran", facts(rows), config)


def certificate(account: Account) -> Html:
    """What is known for certain, in words."""
    lines = _exact_words(account) if account.metrics.method == "exact" else _nystroem_words(account)
    return section(
        "What is certified", html("<ul>$lines</ul>", lines=join(html("<li>$line</li>", line=line) for line in lines))
    )


def _exact_words(account: Account) -> Iterator[Html]:
    known, values = account.metrics.certificate, account.metrics.eigenvalues
    bounds = [bound for bound in known.eigenvalue_bounds if bound is not None]
    if len(bounds) < len(values):
        yield html("Some eigenvalues have <strong>no bound</strong>: it is not finite.")
    elif values:
        place = known.eigenvalue_bounds.index(max(bounds))
        bound = number(max(bounds), f"certificate.eigenvalue_bounds.{place}")
        yield html("An eigenvalue lies within $bound of each one that is stated.", bound=bound)
    complete = "Complete" if known.complete else "Not established to be complete"
    chance = known.failure_probability
    missed = number(known.missed_bound, "certificate.missed_bound")
    yield html("<strong>$word</strong>: $how.", word=complete, how=shorten(known.completeness))
    if chance == 0:
        yield html("Every other eigenvalue is at most $missed; that is proven.", missed=missed)
    else:
        odds = number(chance, "certificate.failure_probability")
        yield html("Every other eigenvalue is at most $missed, but for a chance of $odds.", missed=missed, odds=odds)
    total = number(known.total_variance, "certificate.total_variance")
    yield html(
        "The total variance, of which shares are taken, is $total: exact, without the whole spectrum.", total=total
    )
    error = number(known.kernel_error, "certificate.kernel_error")
    yield html("Entries of the kernel matrix are off by $error at most, to first order.", error=error)


def _nystroem_words(account: Account) -> Iterator[Html]:
    known, metrics = account.metrics.certificate, account.metrics
    residual = number(known.trace_residual, "certificate.trace_residual")
    rounding = number(known.rounding, "certificate.rounding")
    share = percent(metrics.relative_residual, "relative_residual")
    if not known.certified:
        yield html("The negative part of the kernel was dropped: <strong>nothing is certified</strong>.")
        yield html("What the landmarks leave out of the trace was computed to be $residual.", residual=residual)
        yield html("$how.", how=shorten(known.completeness))
        return
    yield html(
        "The landmarks leave out $residual of the trace ($share; ± $rounding of rounding): no eigenvalue is larger "
        "than stated by more.",
        residual=residual,
        share=share,
        rounding=rounding,
    )
    complete = "Complete" if known.complete else "Not established to be complete"
    yield html("<strong>$word</strong>: $how.", word=complete, how=shorten(known.completeness))
    yield html(
        "Every other eigenvalue is at most $bound.", bound=number(known.missed_bound, "certificate.missed_bound")
    )
    low = percent(metrics.explained_variance, "explained_variance")
    high = percent(known.explained_variance_bound, "certificate.explained_variance_bound")
    yield html("The components explain between $low and $high of the variance.", low=low, high=high)


def environment(account: Account) -> Html:
    """Host and versions."""
    versions = [(shorten(name), shorten(version)) for name, version in list(account.run.versions.items())[:40]]
    threads = None if account.run.plan is None else account.run.plan.n_threads
    rows = [
        ("host", shorten(account.run.host)),
        ("cluster", shorten(account.run.config.cluster.kind)),
        ("threads", None if threads is None else number(threads, "run:plan.n_threads")),
        *versions,
    ]
    reasons = [] if account.run.plan is None else account.run.plan.reasons[:40]
    listed = join(html("<li>$reason</li>", reason=shorten(reason)) for reason in reasons)
    why = html("<h3>Why it was done in this way</h3><ul>$listed</ul>", listed=listed) if reasons else Html()
    return section("Environment", facts(rows), why)


def _moment(text: str) -> Html:
    """A time of a run for people."""
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text, re.ASCII) is None:
        return html("$text", text=shorten(text))
    return html('<time datetime="$text">$day $hour UTC</time>', text=text, day=text[:10], hour=text[11:19])


def _kernel(account: Account) -> Html:
    kernel = account.metrics.kernel
    parts = [
        html(
            "$name = $value",
            name=shorten(name),
            value=number(value, f"kernel.{name}") if isinstance(value, float | int) else shorten(str(value)),
        )
        for name, value in list(kernel.items())[:20]
        if name != "name"
    ]
    inside = html(" ($parts)", parts=join(parts, ", ")) if parts else Html()
    return html("$name kernel$inside", name=shorten(str(kernel.get("name", "unnamed"))), inside=inside)


def _landmarks(account: Account) -> Html | None:
    kept, found = account.metrics.certificate.n_landmarks, account.run.landmarks
    if kept is None:
        return None
    how = "" if found is None else f", {shorten(found.method)}{': ' + shorten(found.note) if found.note else ''}"
    return html("$kept$how", kept=number(kept, "certificate.n_landmarks"), how=how)


def _partitions(count: int) -> Html:
    return html("$count partition$s", count=number(count), s="" if count == 1 else "s")


def _count(account: Account) -> Html:
    return number(account.metrics.n_components, "n_components")
