"""Landmarks: the first pass over rows and its sample (`sample`), and which rows become landmarks (`choice`)."""

from scalable_kpca.landmarks.choice import LANDMARK_METHODS, Landmarks, choose_landmarks, sample_size
from scalable_kpca.landmarks.given import choose_columns, fetch_rows
from scalable_kpca.landmarks.sample import BATCH_ROWS, Look, look

__all__ = [
    "BATCH_ROWS",
    "LANDMARK_METHODS",
    "Landmarks",
    "Look",
    "choose_columns",
    "choose_landmarks",
    "fetch_rows",
    "look",
    "sample_size",
]
