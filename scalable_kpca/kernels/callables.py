"""Kernels that are evaluated by others: a function of the caller, and scikit-learn's pairwise kernels without ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.kernels.functions import GivenKernel, Kernel
from scalable_kpca.kernels.namespace import Matrix, Vector, is_numpy_array

__all__ = ["PAIRWISE", "AdditiveChi2", "CallableKernel", "Chi2", "callable_kernel"]

DIAGONAL_ROWS = 32  # of which all pairs are evaluated, for the sake of as many k(x, x)


class _NotRealError(InvalidInputError):
    """A function takes what it is given, and what it gives are no real numbers."""


@dataclass(frozen=True, eq=False)
class CallableKernel(GivenKernel):
    """k(x, y) as a function of the caller evaluates it.

    Attributes
    ----------
    function : callable
        ``function(X, Y, **parameters)`` of shapes (a, d) and (b, d) gives (a, b); or of two rows, a number.
    parameters : mapping
        Its other arguments.
    by_pairs : bool
        Whether it takes two rows: some 10⁶ calls a second at the very best, n²/2 of them in every pass.
    """

    function: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    by_pairs: bool = False
    name = "callable"

    def diagonal(self, rows: Matrix) -> Vector:
        if self.by_pairs:
            return np.array([self._value(x, x) for x in rows])
        values = np.empty(len(rows))
        for start in range(0, len(rows), DIAGONAL_ROWS):
            block = rows[start : start + DIAGONAL_ROWS]
            values[start : start + len(block)] = np.diagonal(self._block(block, block))
        return values

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        out[...] = self._block(left, right.T)

    @property
    def has_float32(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        parameters = dict(self.parameters)
        try:
            json.dumps(parameters, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"kernel_params are written down as JSON, and these cannot be ({error}); give numbers and text, and "
                "bind everything else to the function: functools.partial(function, name=value)."
            ) from error
        where = getattr(self.function, "__module__", "")
        function = f"{where}:{_name_of(self.function)}"
        return {"name": self.name, "function": function, "by_pairs": self.by_pairs, "parameters": parameters}

    def _value(self, x: Vector, y: Vector) -> float:
        value = self.function(x, y, **self.parameters)
        if isinstance(value, (complex, np.complexfloating)):
            raise _NotRealError(
                f"the kernel function {_name_of(self.function)} gave the complex number {value}; real ones are needed."
            )
        return float(value)

    def _block(self, rows: Matrix, columns: Matrix) -> NDArray[Any]:
        if self.by_pairs:
            return np.array([[self._value(x, y) for y in columns] for x in rows])
        values = np.asarray(self.function(rows, columns, **self.parameters))
        if values.shape != (len(rows), len(columns)):
            raise InvalidInputError(
                f"the kernel function {_name_of(self.function)} gave shape {values.shape} for {len(rows)} and "
                f"{len(columns)} rows; {(len(rows), len(columns))} is needed."
            )
        if values.dtype.kind not in "fiub":
            raise _NotRealError(
                f"the kernel function {_name_of(self.function)} gave values of dtype {values.dtype}; real numbers are "
                "needed: float64 or float32."
            )
        return values


def callable_kernel(
    function: Callable[..., Any], parameters: Mapping[str, Any] | None, rows: NDArray[np.floating[Any]]
) -> CallableKernel:
    """Kernel of a function, which is tried on a few rows to see what it takes and whether it is symmetric.

    Parameters
    ----------
    function : callable
        ``f(X, Y, **parameters)`` of blocks of rows, which gives the block of kernel values; or, as scikit-learn has it,
        of two rows, which gives a number.
    parameters : mapping, optional
        Its other arguments.
    rows : ndarray of shape (≥ 1, n_features)
        Some training rows.

    Returns
    -------
    CallableKernel

    Raises
    ------
    InvalidInputError
        When it gives neither a block for two blocks nor a number for two rows, or is not symmetric.
    """
    some = np.resize(np.asarray(rows, np.float64)[:3], (3, np.shape(rows)[1]))
    arguments = dict(parameters or {})
    failures = []
    for by_pairs in (False, True):
        kernel = CallableKernel(function, arguments, by_pairs)
        try:
            # blocks of different lengths: a function of two rows does not take them for a block of values
            values, mirrored = kernel._block(some[:2], some), kernel._block(some, some[:2])
            difference = _asymmetry(values, mirrored.T)
        except _NotRealError:
            raise
        except Exception as error:  # whatever a function raises that was not written for such arguments
            failures.append(f"{type(error).__name__}: {error}")
            continue
        if difference:
            raise InvalidInputError(
                f"the kernel function {_name_of(function)} is not symmetric: f(X, Y) and f(Y, X).T differ by "
                f"{difference:.3g} on the first rows; kernel PCA needs k(x, y) = k(y, x)."
            )
        return kernel
    raise InvalidInputError(
        f"the kernel function {_name_of(function)} takes neither two blocks of rows ({failures[0]}) nor two rows "
        f"({failures[1]}); give f(X, Y) of shapes (a, {some.shape[1]}) and (b, {some.shape[1]}) that returns (a, b)."
    )


def _asymmetry(values: NDArray[Any], others: NDArray[Any]) -> float:
    """Largest difference, 0 within rounding; what is not finite is refused with its rows in a pass, not here."""
    values, others = np.asarray(values, np.float64), np.asarray(others, np.float64)
    finite = np.isfinite(values) & np.isfinite(others)
    largest = float(np.abs(values[finite]).max(initial=0.0))
    difference = float(np.abs(values[finite] - others[finite]).max(initial=0.0))
    return difference if difference > 2e-10 * largest else 0.0


@dataclass(frozen=True)
class Chi2(Kernel):
    """k(x, y) = exp(−γ Σ (x − y)²/(x + y)), x, y ≥ 0: `sklearn.metrics.pairwise.chi2_kernel`."""

    gamma: float
    name = "chi2"

    def diagonal(self, rows: Matrix) -> Vector:
        return np.ones(rows.shape[0])

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return _not_negative(rows, self.name), _not_negative(columns, self.name).T

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        from sklearn.metrics.pairwise import chi2_kernel

        out[...] = chi2_kernel(left, right.T, gamma=self.gamma)

    @property
    def has_float32(self) -> bool:
        return False


@dataclass(frozen=True)
class AdditiveChi2(Kernel):
    """k(x, y) = −Σ (x − y)²/(x + y), x, y ≥ 0: `sklearn.metrics.pairwise.additive_chi2_kernel`.

    Minus a squared distance in a Hilbert space (Hein and Bousquet 2005), so that only the centred matrix is positive
    semi-definite: no Nyström without clipping.
    """

    name = "additive_chi2"

    @property
    def positive_semidefinite(self) -> bool:
        return False

    @property
    def centered_positive_semidefinite(self) -> bool:
        return True

    def diagonal(self, rows: Matrix) -> Vector:
        return np.zeros(rows.shape[0])

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return _not_negative(rows, self.name), _not_negative(columns, self.name).T

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        from sklearn.metrics.pairwise import additive_chi2_kernel

        out[...] = additive_chi2_kernel(left, right.T)

    @property
    def has_float32(self) -> bool:
        return False


PAIRWISE: Mapping[str, type[Kernel]] = {kernel.name: kernel for kernel in (AdditiveChi2, Chi2)}


def _not_negative(rows: Matrix, name: str) -> Matrix:
    if not is_numpy_array(rows):
        raise InvalidInputError(f"kernel={name!r} takes dense numpy rows; convert them, or choose another kernel.")
    lowest = float(rows.min(initial=0.0))
    if lowest < 0:
        raise InvalidInputError(
            f"kernel={name!r} compares amounts, and a feature is {lowest:.6g}; all must be ≥ 0: shift or scale them, "
            "for example to [0, 1]."
        )
    return rows


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
