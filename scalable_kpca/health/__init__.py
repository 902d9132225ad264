"""How later rows differ from those of a fit: what is missing, values out of range, means, scores, novelty."""

from scalable_kpca.health.measures import MEASURES, Finding, compare_columns, compare_novelty, compare_scores
from scalable_kpca.health.profile import N_BINS, N_LEADING, Profile, ScoreBins, score_bins, shares_of

__all__ = [
    "MEASURES",
    "N_BINS",
    "N_LEADING",
    "Finding",
    "Profile",
    "ScoreBins",
    "compare_columns",
    "compare_novelty",
    "compare_scores",
    "score_bins",
    "shares_of",
]
