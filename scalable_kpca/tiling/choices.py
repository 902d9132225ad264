"""What is asked of an exact fit, checked; and what is chosen where nothing is asked: solver and dtype, by size."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from scalable_kpca.errors import ConfigError, InvalidInputError

__all__ = [
    "DENSE_LIMIT",
    "GRAM_HOMES",
    "LANDMARK_METHODS",
    "SOLVERS",
    "check_choice",
    "check_choices",
    "check_components",
    "check_whole",
    "choose_dtype",
    "choose_solver",
    "is_few",
    "is_number",
    "is_possible",
    "is_whole",
]

LANDMARK_METHODS = ("uniform", "kmeans++", "rpcholesky")  # and "given" by an array
GRAM_HOMES = ("zarr", "memory", "recompute")
SOLVERS = ("dense", "arpack", "block_krylov", "power")

DENSE_LIMIT = 2000  # rows up to which a matrix that is formed beats passes
LAPACK_ROWS = 200  # rows up to which LAPACK takes a millisecond, whatever is wanted
ROWS_OF_FEW = 40  # to a pair: from here on Lanczos and a proof beat LAPACK on flat spectra too [docs/decisions/0016]

Components = int | float | None


def check_components(n_components: Any) -> Components:
    """A number of components ≥ 1, a fraction between 0 and 1, or None; InvalidInputError for anything else."""
    if n_components is None:
        return None
    if not isinstance(n_components, bool):
        if isinstance(n_components, (int, np.integer)) and n_components >= 1:
            return int(n_components)
        if isinstance(n_components, (float, np.floating)) and 0 < n_components < 1:
            return float(n_components)
    raise InvalidInputError(
        f"n_components={n_components!r}; an integer ≥ 1, a fraction between 0 and 1, or None is needed."
    )


def is_number(value: Any) -> bool:
    """Whether it is a real number, of Python or numpy, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def is_whole(value: Any) -> bool:
    """Whether it is an integer ≥ 0, of Python or numpy, and no truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


def check_whole(name: str, value: Any) -> int:
    """A whole number ≥ 1; ConfigError with the name for anything else."""
    if not (is_whole(value) and value >= 1):
        raise ConfigError(f"{name}={value!r}; an integer ≥ 1 is needed.")
    return int(value)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """ConfigError for a value that is not among those allowed."""
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not known; choose one of {', '.join(allowed)}.")


def check_choices(dtype: str, solver: str, gram: str, *, has_disk: bool) -> None:
    """ConfigError for a name that is not known, and for stored tiles without a place."""
    check_choice("dtype", dtype, ("auto", "float64", "float32"))
    check_choice("eigen_solver", solver, ("auto", *SOLVERS))
    check_choice("gram", gram, ("auto", *GRAM_HOMES))
    if gram == "zarr" and not has_disk:
        raise ConfigError('gram="zarr" needs a place for the tiles; set workdir to a directory with room.')


def choose_solver(solver: str, n_samples: int, n_components: Components) -> tuple[str, list[str]]:
    """Solver and the reasons for it; ConfigError when the one that is asked for cannot find these components."""
    reasons = []
    if solver == "auto":
        many = isinstance(n_components, int) and 4 * n_components > n_samples
        solver = "dense" if n_samples <= DENSE_LIMIT or n_components is None or many else "block_krylov"
        reasons.append(
            f"solver={solver}: "
            + (f"up to {DENSE_LIMIT} rows a matrix that is formed is cheap" if n_samples <= DENSE_LIMIT
               else "all components are wanted" if n_components is None
               else "a large part of the spectrum is wanted" if many
               else "a few components of a large matrix, in few passes")
        )  # fmt: skip
    elif n_components is None and solver != "dense":
        reasons.append("solver=dense: all components are wanted, and iterative solvers find some")
        solver = "dense"
    elif not is_possible(solver, n_components):
        raise ConfigError(
            f"eigen_solver={solver!r} finds a given number of components, n_components={n_components!r} is not one; "
            "set n_components to an integer or eigen_solver to 'dense'."
        )
    too_many = isinstance(n_components, int) and n_components >= n_samples
    if solver != "dense" and (too_many or n_samples == 1):
        reasons.append(f"solver=dense: iterative solvers find at most n_samples − 1 = {n_samples - 1} components")
        solver = "dense"
    return solver, reasons


def is_few(n_samples: int, n_components: int) -> bool:
    """Whether so few components are wanted, 0 being unknown, that LAPACK does more than is needed."""
    return 0 < ROWS_OF_FEW * n_components <= n_samples and n_samples > LAPACK_ROWS


def is_possible(solver: str, n_components: Components) -> bool:
    """Whether a solver can find this number, or share, of components."""
    if solver == "dense":
        return True
    return n_components is not None if solver == "block_krylov" else isinstance(n_components, int)


def choose_dtype(dtype: str, n_samples: int) -> tuple[str, list[str]]:
    """Dtype of the tiles and the reasons for it."""
    if dtype != "auto":
        return dtype, []
    if n_samples > DENSE_LIMIT:
        return "float32", ["dtype=float32: half the bytes; the certificate names the rounding"]
    return "float64", [f"dtype=float64: up to {DENSE_LIMIT} rows precision costs little"]
