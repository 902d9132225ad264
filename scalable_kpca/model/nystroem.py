"""A Nyström model: landmarks, sums over the training rows, and the components that they give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.kernels import Kernel
from scalable_kpca.model.files import (
    arrays_path,
    check_fields,
    check_finite,
    create_array,
    new_model,
    read_array,
    read_preparation,
)
from scalable_kpca.model.ridge import RidgeMap, read_ridge, ridge_arrays, ridge_pairs
from scalable_kpca.nystroem import Accumulators, Basis, NystroemCertificate, Projection
from scalable_kpca.source import (
    ROW_DTYPES,
    Preparation,
    RowBlock,
    SparseRows,
    StoredSparseRows,
    gram_columns,
    is_sparse,
    open_stored,
    write_sparse_rows,
)

__all__ = ["NystroemModel", "read_nystroem", "save_nystroem"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

CHUNK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class NystroemModel:
    """Everything that is needed to project rows, and to add rows without reading the old ones again.

    Attributes
    ----------
    basis : Basis
        Kernel and landmarks.
    sums : Accumulators
        Over the training rows.
    eigenvalues : ndarray of shape (k,), float64
        Of K̃̂, descending; those that count as zero are exactly 0.
    weights : ndarray of shape (m, k), float64
        Of the landmarks in the scores: see `Projection`.
    offset : ndarray of shape (k,), float64
    certificate : NystroemCertificate
    feature_names : tuple of str
        Empty when the rows had none.
    columns : ndarray of shape (m,), int64, or None
        Of a precomputed kernel: which columns of its rows are the landmarks'.
    preparation : Preparation or None
        How features are made of a table's columns, where they are not these columns as they are.
    way_back : RidgeMap or None
        From scores to rows, where one was learned: on landmarks.
    """

    basis: Basis
    sums: Accumulators
    eigenvalues: Vector
    weights: Matrix
    offset: Vector
    certificate: NystroemCertificate
    feature_names: tuple[str, ...] = ()
    columns: NDArray[np.int64] | None = None
    preparation: Preparation | None = None
    way_back: RidgeMap | None = None

    solver = "nystroem"
    n_passes = 0

    @property
    def kernel(self) -> Kernel:
        """Kernel with resolved parameters."""
        return self.basis.kernel

    @property
    def dtype(self) -> str:
        """Of the kernel values."""
        return self.basis.dtype

    @property
    def n_samples(self) -> int:
        """Training rows."""
        return self.sums.n_samples

    @property
    def n_features(self) -> int:
        """Columns of a row; of a precomputed kernel, its values with all training rows."""
        return self.n_samples if self.columns is not None else int(self.basis.landmarks.shape[1])

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.eigenvalues)

    @property
    def projection(self) -> Projection:
        """Function from rows to scores; of a precomputed kernel, from their values with the landmarks."""
        return Projection(self.basis, self.weights, self.offset)

    def scores(self, rows: RowBlock) -> Matrix:
        """Scores of rows (b, n_features), shape (b, k), float64."""
        return self.projection(rows if self.columns is None else gram_columns(rows, self.columns, None))


def save_nystroem(model: NystroemModel, path: str | Path) -> None:
    """Write a model in a new directory; bytes: 8·(2·m² + m·(d + k)) at most, whatever the number of training rows."""
    basis, sums = model.basis, model.sums
    description = {
        "method": "nystroem",
        "kernel": basis.kernel.to_json(),
        "n_samples": sums.n_samples,
        "dtype": basis.dtype,
        "scale": basis.scale,
        "accumulates_features": basis.accumulates_features,
        "negative_share": basis.negative_share,
        "basis": basis.digest,
        "diagonal_sum": sums.diagonal_sum,
        "max_diagonal": sums.max_diagonal,
        "entry_error": sums.entry_error,
        "certificate": model.certificate.to_json(),
        "feature_names": list(model.feature_names),
        "preparation": None if model.preparation is None else model.preparation.to_json(),
        "ridge_pairs": ridge_pairs(model.way_back),
        "precomputed": model.columns is not None,
        "landmarks": "csr" if is_sparse(basis.landmarks) else "dense",
        "n_features": int(basis.landmarks.shape[1]),
    }
    with new_model(path, description) as group:
        for name, values in _arrays(model).items():
            create_array(group, name, values.shape, values.dtype.name, CHUNK_ROWS)[...] = values
        if is_sparse(basis.landmarks):
            write_sparse_rows(SparseRows(basis.landmarks), _landmarks_path(Path(path)), batch_rows=CHUNK_ROWS)


def read_nystroem(directory: Path, fields: dict[str, Any]) -> NystroemModel:
    """Model from a directory and its description; any exception when they do not belong together."""
    check_fields(fields, "n_samples", "n_features", "ridge_pairs")
    found = {name: read_array(directory, name, n_dims) for name, n_dims in _FLOAT64.items()}
    basis = Basis(
        kernel=fields["kernel"],
        landmarks=_landmarks(directory, fields, len(found["shift"])),
        dtype=fields["dtype"],
        scale=float(fields["scale"]),
        accumulates_features=bool(fields["accumulates_features"]),
        negative_share=float(fields["negative_share"]),
        **{name: found[name] for name in ("shift", "omega", "projection")},
    )
    numbers = {name: float(fields[name]) for name in ("diagonal_sum", "max_diagonal", "entry_error")}
    model = NystroemModel(
        basis=basis,
        sums=Accumulators(basis.digest, fields["n_samples"], found["gram"], found["sums"], **numbers),
        eigenvalues=found["eigenvalues"],
        weights=found["weights"],
        offset=found["offset"],
        certificate=NystroemCertificate.from_json(fields["certificate"]),
        feature_names=tuple(fields["feature_names"]),
        preparation=read_preparation(fields),
        way_back=read_ridge(directory, fields, len(found["eigenvalues"])),
    )
    if fields["precomputed"]:
        model = replace(model, columns=read_array(directory, "columns", 1, "int64"))
    check_finite({**_arrays(model), **numbers})
    _check_shapes(model, fields)
    return model


_FLOAT64 = {"shift": 1, "omega": 1, "projection": 2, "gram": 2, "sums": 1, "eigenvalues": 1, "weights": 2, "offset": 1}


def _landmarks(directory: Path, fields: dict[str, Any], m: int) -> RowBlock:
    if fields["landmarks"] != "csr":
        return read_array(directory, "landmarks", 2, *ROW_DTYPES)
    path = _landmarks_path(directory)
    dtype = open_stored(path / "data", ROW_DTYPES, 1).dtype.name
    return StoredSparseRows(str(path), m, fields["n_features"], dtype).read(slice(0, m))


def _arrays(model: NystroemModel) -> dict[str, NDArray[Any]]:
    basis, sums = model.basis, model.sums
    dense = {} if is_sparse(basis.landmarks) else {"landmarks": basis.landmarks}
    columns = {} if model.columns is None else {"columns": model.columns}
    return (
        dense
        | columns
        | {
            "shift": basis.shift,
            "omega": basis.omega,
            "projection": basis.projection,
            "gram": sums.gram,
            "sums": sums.sums,
            "eigenvalues": model.eigenvalues,
            "weights": model.weights,
            "offset": model.offset,
        }
        | ridge_arrays(model.way_back)
    )


def _landmarks_path(directory: Path) -> Path:
    return arrays_path(directory) / "landmarks"


def _check_shapes(model: NystroemModel, fields: dict[str, Any]) -> None:
    basis, sums, k = model.basis, model.sums, model.n_components
    m, r, c = basis.n_landmarks, basis.rank, basis.n_columns
    fits = (
        basis.landmarks.ndim == 2
        and basis.landmarks.shape == (m, fields["n_features"])
        and basis.shift.shape == (m,)
        and basis.projection.shape == (m, r)
        and (sums.gram.shape, sums.sums.shape) == ((c, c), (c,))
        and (
            model.columns is None
            or (model.columns.shape == (m,) and 0 <= model.columns.min() <= model.columns.max() < sums.n_samples)
        )
        and (model.weights.shape, model.offset.shape) == ((m, k), (k,))
    )
    if not fits:
        raise ValueError("the arrays do not fit together")
    if basis.digest != fields["basis"]:
        raise ValueError("landmarks and projection are not those of model.json")
    if sums.n_samples < 1:
        raise ValueError(f"n_samples is {sums.n_samples}")
