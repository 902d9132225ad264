"""What is drawn, checked before axes are touched."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalable_kpca.errors import InvalidInputError

__all__ = ["check_model", "check_plane", "finite", "group_numbers", "vectors"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def vectors(**named: ArrayLike) -> tuple[Vector, ...]:
    """Lists of numbers of one length, by the names that a caller gave them."""
    found = {name: np.asarray(values, np.float64) for name, values in named.items()}
    shapes = {name: values.shape for name, values in found.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        listed = ", ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise InvalidInputError(f"{listed}; one dimension is needed, and as many entries in each.")
    return tuple(found.values())


def group_numbers(groups: ArrayLike | None, n_rows: int) -> NDArray[np.int64]:
    """Groups of rows, all 0 where none are given."""
    found = np.zeros(n_rows, np.int64) if groups is None else np.asarray(groups)
    if found.shape != (n_rows,) or found.dtype.kind not in "iu" or (found < 0).any():
        raise InvalidInputError(
            f"groups has shape {found.shape} and dtype {found.dtype}; a whole number ≥ 0 for each of {n_rows} rows is "
            "needed."
        )
    return found.astype(np.int64)


def finite(values: Vector) -> Vector:
    """Numbers that have a place on an axis."""
    return values[np.isfinite(values)]


def check_plane(X: ArrayLike) -> Matrix:
    """Rows of two features, at least one."""
    rows = np.asarray(X, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) == 0:
        raise InvalidInputError(f"rows of shape {rows.shape} lie in no plane; (m, 2) with m ≥ 1 is needed to draw one.")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise InvalidInputError(f"row {bad[0]} is {rows[bad[0]].tolist()}; the plane of finite rows is drawn only.")
    return rows


def check_model(fitted: Any) -> Any:
    """A model, or that of an estimator; NotFittedError of one that was not fitted."""
    if hasattr(fitted, "fit"):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(fitted)
        return fitted.model_
    return fitted
