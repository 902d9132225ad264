"""What the components leave out of rows, in feature space."""

from __future__ import annotations

from typing import Any

from scalable_kpca.engine import active_kind, open_engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.model import AnyModel, NystroemModel
from scalable_kpca.novelty import novelty_scorer
from scalable_kpca.preimage import as_array
from scalable_kpca.quality.checks import model_of
from scalable_kpca.staging import is_dask

__all__ = ["reconstruction_error"]


def reconstruction_error(fitted: Any, rows: Any = None) -> float:
    """Mean squared distance in feature space between rows and what their scores say of them.

    Parameters
    ----------
    fitted : KernelPCA, Model or NystroemModel
        A fitted estimator, or a model.
    rows : array-like or dask array of shape (b, n_features), b ≥ 1, optional
        Finite numbers; a dask array is read block by block. Without any, the training rows.

    Returns
    -------
    float
        Mean of `novelty`, ≥ 0; of the training rows from the spectrum alone, (tr K̃ − Σλ)/n, for a Nyström model with
        what its landmarks do not reach: (tr K̃̂ + tr(K − K̂) − Σλ)/n.

    Raises
    ------
    InvalidInputError
        For what is no model, no rows, and as `novelty` does.
    NotFittedError
        For an estimator that is not fitted.

    Notes
    -----
    The mean squared norm of a centred training row is tr K̃/n: the error over it is one minus the explained share. Cost:
    none for the training rows, else that of `project`.
    """
    model = model_of(fitted)
    if rows is None:
        return max(0.0, (_variance(model) - float(model.eigenvalues.sum())) / model.n_samples)
    rows = rows if is_dask(rows) or hasattr(rows, "tocsr") else as_array("rows", rows)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"rows have shape {rows.shape} and dtype {rows.dtype}; numbers are needed, {model.n_features} in each row."
        )
    if rows.shape[0] == 0:
        raise InvalidInputError("there are no rows, and the mean error is over at least one.")
    scorer = novelty_scorer(model)
    if not is_dask(rows):
        return float(scorer(rows).mean())
    total, count = 0.0, 0
    with open_engine(active_kind()) as engine:
        for block in engine.row_blocks(rows):
            total, count = total + float(scorer(block).sum()), count + len(block)
    return total / count


def _variance(model: AnyModel) -> float:
    """Trace of K̃ as far as the model knows it."""
    if isinstance(model, NystroemModel):
        return model.certificate.approximated_variance + model.certificate.trace_residual
    return model.certificate.total_variance
