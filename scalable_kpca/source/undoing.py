"""Features back to columns of the table that they were made of, as far as that can be told."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.source.preparation import Preparation, Vocabulary

__all__ = ["original_columns"]


def original_columns(preparation: Preparation, features: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Columns of the table by their names, from features (m, n_features), which may be none that a row has exactly.

    Numbers get their units back: times the standard deviation of the fit, plus its mean. A category is the one whose
    feature is largest, the first of several; null where that is the feature of nulls. What a filled-in value stood for
    is not known: it stays what it is, and the values of a row that was left out are nowhere.

    Returns
    -------
    dict of str to pyarrow.Array
        float64 numbers, in the order of the features, then text.
    """
    import pyarrow as pa

    n = len(preparation.numeric)
    numbers = features[:, :n].astype(np.float64)
    if preparation.mean:
        numbers *= np.array(preparation.scale)
        numbers += np.array(preparation.mean)
    columns = {
        name: pa.array(np.ascontiguousarray(values))
        for name, values in zip(preparation.numeric, numbers.T, strict=True)
    }
    for vocabulary in preparation.vocabularies:
        width = len(vocabulary.values)
        columns[vocabulary.column] = _most_likely(features[:, n : n + width], vocabulary)
        n += width
    return columns


def _most_likely(block: NDArray[np.floating[Any]], vocabulary: Vocabulary) -> Any:
    import pyarrow as pa

    values = pa.array(vocabulary.values, pa.string())
    if not len(values):  # a column of a fit that saw no category has no features
        return pa.nulls(len(block), pa.string())
    return values.take(pa.array(block.argmax(axis=1)))
