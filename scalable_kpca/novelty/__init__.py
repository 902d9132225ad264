"""How far rows are from what the components describe: the novelty score of Hoffmann, and how well it is known."""

from scalable_kpca.novelty.rounding import warn_of_rounding
from scalable_kpca.novelty.scores import (
    novelty,
    novelty_lazily,
    novelty_scorer,
    novelty_threshold,
    scores_and_novelty,
    training_novelty,
)

__all__ = [
    "novelty",
    "novelty_lazily",
    "novelty_scorer",
    "novelty_threshold",
    "scores_and_novelty",
    "training_novelty",
    "warn_of_rounding",
]
