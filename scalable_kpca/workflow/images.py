"""Tables of pre-images: the rows that scores are mapped back to, in the columns of their source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import ConfigError
from scalable_kpca.model import AnyModel
from scalable_kpca.preimage import held_map
from scalable_kpca.source import PreparedSource, Source, original_columns

__all__ = ["pre_images"]

Matrix = NDArray[np.float64]


def pre_images(model: AnyModel, source: Source) -> Callable[[Any, Matrix], Any]:
    """Function from labels and scores (m, k) of the same m rows to their table of labels and pre-images.

    Raises
    ------
    ConfigError
        For a model without a map, and when a label has the name of a column that is reconstructed.
    """
    import pyarrow as pa

    back = held_map(model)
    preparation = source.preparation if isinstance(source, PreparedSource) else None
    names = source.feature_names if preparation is None else (*preparation.numeric, *preparation.categorical)
    taken = sorted(set(names) & set(source.label_names))
    if taken:
        raise ConfigError(
            f"columns {', '.join(taken)} travel beside the rows, and are features that are reconstructed too; leave "
            "them out of source.id, source.passthrough and source.partition of the fit."
        )

    def table(labels: Any, scores: Matrix) -> Any:
        features = back(scores)
        if preparation is not None:
            columns = original_columns(preparation, features)
        else:
            columns = {
                name: pa.array(np.ascontiguousarray(values)) for name, values in zip(names, features.T, strict=True)
            }
        return pa.table([*labels.columns, *columns.values()], names=[*labels.column_names, *columns])

    return table
