"""The way back of a job: how much memory its map from scores to rows takes, and the model that holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dask.utils import format_bytes

from scalable_kpca.errors import MemoryLimitError
from scalable_kpca.machine import release_memory, resolve_memory_limit, resolve_threads
from scalable_kpca.model import AnyModel
from scalable_kpca.preimage import learn_ridge, most_pairs, ridge_bytes
from scalable_kpca.tiling import PROCESS_BYTES, NystroemPlan, Plan
from scalable_kpca.workflow.config import Config

__all__ = ["held_bytes", "learn_map", "learning_bytes", "plan_with_map", "stored_bytes"]

AnyPlan = Plan | NystroemPlan
SomePlan = TypeVar("SomePlan", bound=AnyPlan)
Fitted = TypeVar("Fitted", bound=AnyModel)


def learn_map(model: Fitted, config: Config) -> Fitted:
    """The model of a job with the map that its configuration asks for; as it is, where that asks for none.

    An exact model learns from its training rows, 2000 of them drawn uniformly or as many as there may be landmarks; a
    Nyström model from its landmarks. Nothing else is read, so that a model which grew can learn again.
    """
    if config.inverse is None:
        return model
    release_memory()  # what tasks have freed
    limit = most_pairs(config.nystroem.n_landmarks)
    return learn_ridge(model, config.inverse.alpha, limit=limit, seed=config.seed)


def held_bytes(config: Config, n_pairs: int, n_components: int, n_features: int) -> int:
    """Bytes of a map of so many pairs while rows are scored, with what each task evaluates it by; 0 without a map."""
    if config.inverse is None:
        return 0
    n_threads = resolve_threads(config.cluster.n_jobs)
    folded = 2 * n_threads * n_pairs * (n_components + 2)
    return 8 * (n_pairs * (n_components + n_features) + n_features + folded)


def stored_bytes(config: Config, plan: AnyPlan) -> int:
    """Bytes on the disk of what stands beside the scores, and of a map in the model."""
    columns = 8 * plan.n_samples * len(config.beside)
    if config.inverse is None:
        return columns
    n = plan.n_landmarks if isinstance(plan, NystroemPlan) else plan.n_samples
    pairs = min(most_pairs(config.nystroem.n_landmarks), n)
    return columns + 8 * (pairs * ((plan.n_components or pairs) + plan.n_features) + plan.n_features)


def learning_bytes(config: Config, plan: AnyPlan) -> int:
    """Bytes of the process while a map is learned after a fit by the plan; 0 without a map."""
    if config.inverse is None:
        return 0
    d, limit = plan.n_features, most_pairs(config.nystroem.n_landmarks)
    if isinstance(plan, NystroemPlan):
        m, k = plan.n_landmarks, plan.n_components or plan.n_landmarks
        return PROCESS_BYTES + 8 * (3 * m * m + 2 * m * d + m * k) + ridge_bytes(min(limit, m), k, d)
    # an unknown number of components: all where all are found, else what the solver is planned to hold
    k = plan.n_components or min(plan.max_basis or plan.n_samples, plan.n_samples)
    return PROCESS_BYTES + 16 * plan.n_samples * k + ridge_bytes(min(limit, plan.n_samples), k, d)


def plan_with_map(plan_within: Callable[[int], SomePlan], config: Config) -> SomePlan:
    """Plan of a job within its limit, which has to hold the map too where the model learns one after the fit.

    Raises
    ------
    MemoryLimitError
        Naming the smallest limit that holds the fit, and after it the map.
    """
    given = limit = resolve_memory_limit(config.budget.memory)
    if config.inverse is None:
        return plan_within(limit)
    plan = _needed(plan_within, config, limit)
    # each limit that is too small names the next: it may lead to another plan, and that to a larger map
    while isinstance(plan, int):
        limit = plan
        plan = _needed(plan_within, config, limit)
    if limit > given:
        raise MemoryLimitError(
            f"memory_limit={format_bytes(given)} cannot hold the fit and, after it, the map from scores to rows that "
            f"inverse asks for, learned on {most_pairs(config.nystroem.n_landmarks)} of them at most; raise "
            f"budget.memory to {limit} bytes ({format_bytes(limit)}), or set inverse: false.",
            limit,
        )
    peak = learning_bytes(config, plan)
    why = f"inverse: the map from scores to rows is learned with {format_bytes(peak)} after the fit"
    return replace(plan, peak_memory=max(plan.peak_memory, peak), reasons=(*plan.reasons, why))


def _needed(plan_within: Callable[[int], SomePlan], config: Config, limit: int) -> SomePlan | int:
    """Plan within a limit, or the bytes of what does not keep to it: the fit, or the map after it."""
    try:
        plan = plan_within(limit)
    except MemoryLimitError as error:
        if error.needed <= limit:  # a limit of another kind, which no budget raises
            raise
        return error.needed
    needed = learning_bytes(config, plan)
    return needed if needed > limit else plan
