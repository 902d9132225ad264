"""What the rows of a fit are like, and how later ones differ from them: values, means, scores, novelty."""

from scalable_kpca.health.linear_share import JointMoments, LinearShare
from scalable_kpca.health.measures import MEASURES, Finding, compare_columns, compare_novelty, compare_scores
from scalable_kpca.health.profile import N_BINS, N_LEADING, Profile, ScoreBins, score_bins, shares_of

__all__ = [
    "MEASURES",
    "N_BINS",
    "N_LEADING",
    "Finding",
    "JointMoments",
    "LinearShare",
    "Profile",
    "ScoreBins",
    "compare_columns",
    "compare_novelty",
    "compare_scores",
    "score_bins",
    "shares_of",
]
