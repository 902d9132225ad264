"""Kernels by name: parameters are resolved once, against the training rows or from a saved model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels.callables import PAIRWISE, CallableKernel
from scalable_kpca.kernels.distances import RBF, Laplacian, Matern12, Matern32, Matern52
from scalable_kpca.kernels.functions import Cosine, Kernel, Linear, Polynomial, Precomputed, Sigmoid

__all__ = ["KERNELS", "kernel_from_json", "resolve_kernel"]

_MINIMA = {"gamma": 0.0, "degree": 0.0}

KERNELS: Mapping[str, type[Kernel]] = {
    kernel.name: kernel
    for kernel in (Linear, Polynomial, RBF, Sigmoid, Laplacian, Cosine, Matern12, Matern32, Matern52)
}
_NAMED: Mapping[str, type[Kernel]] = {**KERNELS, **PAIRWISE}
_OTHER_NAMES = {"polynomial": Polynomial.name}  # scikit-learn has two


def resolve_kernel(
    name: str,
    *,
    gamma: float | str | None = None,
    degree: float = 3,
    coef0: float = 1,
    n_features: int,
    variance: float | None = None,
    median: float | Callable[[], float] | None = None,
) -> Kernel:
    """Kernel object for scikit-learn's names and parameters, resolved once against the training rows.

    Parameters
    ----------
    name : str
        One of ``linear poly rbf sigmoid laplacian cosine matern12 matern32 matern52 chi2 additive_chi2``; Matérn with
        ν = 1/2, 3/2 and 5/2. ``polynomial`` is ``poly``.
    gamma : float, "scale", "median" or None
        None is 1/n_features; ``"scale"`` is 1/(n_features · variance); ``"median"`` is what `median` gives. Of Matérn
        with length scale ℓ it is 1/(2ℓ²).
    degree, coef0 : float
        Of the polynomial and (coef0) sigmoid kernels.
    n_features : int
        Columns of the training rows.
    variance : float, optional
        Variance of all training entries; needed for ``"scale"`` only.
    median : float or callable, optional
        `median_gamma` of some training rows, or a function that finds it: called for ``"median"`` only, and only for a
        kernel with gamma.

    Returns
    -------
    Kernel

    Raises
    ------
    InvalidInputError
        For an unknown name or a parameter outside its range.

    Examples
    --------
    >>> resolve_kernel("rbf", n_features=4)
    RBF(gamma=0.25)
    """
    name = _OTHER_NAMES.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in _NAMED:
        raise InvalidInputError(
            f"kernel={name!r} is not known; choose one of {', '.join(sorted(_NAMED))}; KernelPCA takes "
            "'precomputed' and functions too."
        )
    parameters: dict[str, float] = {}
    wanted = {field.name for field in fields(_NAMED[name])}
    if "gamma" in wanted:
        parameters["gamma"] = _resolve_gamma(gamma, n_features, variance, median)
    if "degree" in wanted:
        parameters["degree"] = _finite("degree", degree, _MINIMA["degree"])
    if "coef0" in wanted:
        parameters["coef0"] = _finite("coef0", coef0)
    return _NAMED[name](**parameters)


def kernel_from_json(description: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Kernel:
    """Kernel object from what `Kernel.to_json` gave, with the function of one that is a function.

    Raises
    ------
    InvalidInputError
        When it is no kernel.
    """
    parameters = dict(description)
    name = parameters.pop("name", None)
    if name == CallableKernel.name:
        if function is None:
            raise InvalidInputError(f"the kernel is the function {description['function']}, which is not given.")
        return CallableKernel(function, parameters["parameters"], bool(parameters["by_pairs"]))
    if name == Precomputed.name and not parameters:
        return Precomputed()
    if not isinstance(name, str) or name not in _NAMED:
        raise InvalidInputError(f"kernel name {name!r} is not one of {', '.join(sorted(_NAMED))}.")
    wanted = {field.name for field in fields(_NAMED[name])}
    if set(parameters) != wanted:
        raise InvalidInputError(f"kernel {name!r} has parameters {sorted(wanted)}, found {sorted(parameters)}.")
    return _NAMED[name](**{key: _finite(key, value, _MINIMA.get(key)) for key, value in parameters.items()})


def _resolve_gamma(
    gamma: float | str | None,
    n_features: int,
    variance: float | None,
    median: float | Callable[[], float] | None,
) -> float:
    if gamma is None:
        return 1.0 / n_features
    if gamma == "scale":
        if variance is None:
            raise InvalidInputError('gamma="scale" needs the variance of the training rows.')
        if not math.isfinite(variance):
            raise InvalidInputError('gamma="scale": the variance of the rows overflows; scale the features down.')
        return 1.0 / (n_features * variance) if variance > 0 else 1.0
    if gamma == "median":
        if median is None:
            raise InvalidInputError('gamma="median" needs some of the training rows; give a number instead.')
        return _finite("gamma", median() if callable(median) else median, _MINIMA["gamma"])
    if isinstance(gamma, str):
        raise InvalidInputError(f'gamma={gamma!r} is not known; give a number ≥ 0, "scale", "median" or None.')
    return _finite("gamma", gamma, _MINIMA["gamma"])


def _finite(name: str, value: float, minimum: float | None = None) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name}={value!r} is not a number.") from None
    if not math.isfinite(number) or (minimum is not None and number < minimum):
        bound = "" if minimum is None else f" ≥ {minimum:g}"
        raise InvalidInputError(f"{name}={value!r}; a finite number{bound} is needed.")
    return number
