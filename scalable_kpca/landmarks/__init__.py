"""Landmarks: the first pass over rows and its sample (`sample`), and which rows become landmarks (`choice`)."""

from scalable_kpca.landmarks.choice import Landmarks, choose_landmarks, find_landmarks, sample_size
from scalable_kpca.landmarks.draw import draw_numbers, draw_rows, sampled_gamma
from scalable_kpca.landmarks.given import choose_columns, fetch_rows
from scalable_kpca.landmarks.sample import Look, look
from scalable_kpca.tiling import LANDMARK_METHODS

__all__ = [
    "LANDMARK_METHODS",
    "Landmarks",
    "Look",
    "choose_columns",
    "choose_landmarks",
    "draw_numbers",
    "draw_rows",
    "fetch_rows",
    "find_landmarks",
    "look",
    "sample_size",
    "sampled_gamma",
]
