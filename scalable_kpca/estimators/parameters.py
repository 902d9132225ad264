"""Parameters of `KernelPCA`: each is checked before any row is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.fitting import RANDOMIZED
from scalable_kpca.kernels import resolve_kernel
from scalable_kpca.machine import resolve_memory_limit, resolve_threads
from scalable_kpca.tiling import (
    GRAM_HOMES,
    LANDMARK_METHODS,
    SOLVERS,
    check_choice,
    check_components,
    check_whole,
    is_number,
    is_whole,
)

__all__ = ["check_parameters", "seed_of"]

_CHOICES = {
    "method": ("auto", "exact", "nystroem"),
    "eigen_solver": ("auto", *SOLVERS, RANDOMIZED),
    "gram": ("auto", *GRAM_HOMES),
    "indefinite": ("error", "clip"),
    "on_failure": ("error", "return"),
    "dtype": ("auto", "float64", "float32"),
}
_SWITCHES = ("remove_zero_eig", "copy_X")


def check_parameters(estimator: Any) -> None:
    """Refuse a parameter that no rows could make right.

    Parameters
    ----------
    estimator : KernelPCA

    Raises
    ------
    ConfigError, InvalidInputError
        Both ValueErrors: naming the parameter, what it is and what is needed.
    """
    check_components(estimator.n_components)
    _check_kernel(estimator)
    for name, allowed in _CHOICES.items():
        check_choice(name, getattr(estimator, name), allowed)
    for name in _SWITCHES:
        if not isinstance(getattr(estimator, name), (bool, np.bool_)):
            raise ConfigError(f"{name}={getattr(estimator, name)!r}; True or False is needed.")
    check_whole("n_landmarks", estimator.n_landmarks)
    for name in ("max_iter", "tile_rows"):
        if getattr(estimator, name) is not None:
            check_whole(name, getattr(estimator, name))
    for name, alternative in (("max_passes", None), ("iterated_power", "auto")):
        value = getattr(estimator, name)
        if not (_is(value, alternative) or is_whole(value)):
            raise ConfigError(f"{name}={value!r}; an integer ≥ 0 or {alternative!r} is needed.")
    if not (estimator.tol is None or (is_number(estimator.tol) and 0 <= estimator.tol < math.inf)):
        raise ConfigError(f"tol={estimator.tol!r}; a finite number ≥ 0 or None is needed.")
    _check_landmarks(estimator.landmarks)
    if not (estimator.workdir is None or isinstance(estimator.workdir, (str, os.PathLike))):
        raise ConfigError(f"workdir={estimator.workdir!r}; the path of a directory or None is needed.")
    if not _is_random_state(estimator.random_state):
        raise InvalidInputError(
            f"random_state={estimator.random_state!r}; an integer ≥ 0, a numpy RandomState or Generator, or None is "
            "needed."
        )
    resolve_memory_limit(estimator.memory_limit)
    resolve_threads(estimator.n_jobs)


def seed_of(random_state: Any) -> int:
    """Seed of a fit: the number itself, 0 for None, or one that a generator draws."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def _check_kernel(estimator: Any) -> None:
    kernel, gamma, parameters = estimator.kernel, estimator.gamma, estimator.kernel_params
    for name, value in (("gamma", gamma), ("degree", estimator.degree), ("coef0", estimator.coef0)):
        if not (is_number(value) or (name == "gamma" and (value is None or isinstance(value, str)))):
            words = 'a number ≥ 0, "scale", "median" or None' if name == "gamma" else "a finite number"
            raise InvalidInputError(f"{name}={value!r}; {words} is needed.")
    named = {"gamma": gamma, "degree": estimator.degree, "coef0": estimator.coef0}
    # of a kernel that has them all; the rows that a gamma is taken from are still to come
    known: dict[str, Any] = {"n_features": 1, "variance": 1.0, "median": 1.0}
    resolve_kernel("poly", **named, **known)
    if not callable(kernel) and kernel != "precomputed":
        resolve_kernel(kernel, **named, **known)
    if not (parameters is None or isinstance(parameters, Mapping)):
        raise ConfigError(f"kernel_params={parameters!r}; a dict of the kernel function's arguments or None is needed.")


def _check_landmarks(landmarks: Any) -> None:
    if isinstance(landmarks, str):
        check_choice("landmarks", landmarks, LANDMARK_METHODS)
    elif _dimensions(landmarks) not in (1, 2):
        raise ConfigError(
            f"landmarks={landmarks!r}; one of {', '.join(LANDMARK_METHODS)}, numbers of rows of shape (m,), or rows of "
            "shape (m, n_features) are needed."
        )


def _dimensions(values: Any) -> int:
    try:
        return np.ndim(values)
    except ValueError:  # rows of different lengths
        return -1


def _is(value: Any, alternative: Any) -> bool:
    return value is None if alternative is None else isinstance(value, str) and value == alternative


def _is_random_state(value: Any) -> bool:
    return value is None or isinstance(value, (np.random.Generator, np.random.RandomState)) or is_whole(value)
