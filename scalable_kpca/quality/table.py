"""Eigenvalues with what is known for certain about each, as a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalable_kpca.certificate import Certificate
from scalable_kpca.errors import ConfigError
from scalable_kpca.nystroem import NystroemCertificate
from scalable_kpca.quality.checks import model_of

__all__ = ["eigenvalue_table", "pandas_frame"]


def eigenvalue_table(fitted: Any) -> Any:
    """Eigenvalues, shares and bounds of a fit as a pandas DataFrame, one row a component.

    Parameters
    ----------
    fitted : KernelPCA, Model or NystroemModel
        A fitted estimator, or a model.

    Returns
    -------
    pandas.DataFrame
        Index ``component`` from 0. Columns, all float64: ``eigenvalue`` of K̃; ``share``, its explained-variance ratio
        (of a Nyström fit a lower bound on it), and ``cumulative``; ``residual_norm`` ‖K̃v − λv‖, NaN for a Nyström fit,
        which has none; ``lower`` and ``upper``, between which an eigenvalue of the evaluated K̃ is certain to lie, NaN
        where nothing is certified.

    Raises
    ------
    ConfigError
        Without pandas.
    NotFittedError
        For an estimator that is not fitted.
    InvalidInputError
        For what is no model.
    """
    model = model_of(fitted)
    certificate: Certificate | NystroemCertificate = model.certificate
    values, bounds = model.eigenvalues, certificate.eigenvalue_bounds
    if isinstance(certificate, NystroemCertificate):
        norms, below = np.full(len(values), np.nan), np.full(len(values), certificate.rounding)
        if not certificate.certified:
            bounds, below = norms, norms
    else:
        norms, below = certificate.residual_norms, bounds
    lower = values - below
    if model.kernel.positive_semidefinite:
        lower = np.maximum(lower, 0.0)
    shares = certificate.explained_variance_ratio
    columns = {
        "eigenvalue": values,
        "share": shares,
        "cumulative": np.cumsum(shares),
        "residual_norm": norms,
        "lower": lower,
        "upper": values + bounds,
    }
    frame = pandas_frame(columns)
    frame.index.name = "component"
    return frame


def pandas_frame(columns: dict[str, Any]) -> Any:
    """DataFrame of some columns; ConfigError where there is no pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ConfigError("a table is a pandas DataFrame, and pandas is not installed; pip install pandas.") from error
    return pd.DataFrame(columns)
