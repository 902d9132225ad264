"""An exact model: training rows, eigenpairs of their centred Gram matrix, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.centering import Centering
from scalable_kpca.certificate import Certificate
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
from scalable_kpca.source import (
    ROW_DTYPES,
    ArrayRows,
    NoRows,
    Preparation,
    Rows,
    SparseRows,
    StoredRows,
    StoredSparseRows,
    check_group,
    is_sparse,
    open_stored,
    write_sparse_rows,
)
from scalable_kpca.tiling import Tiling

__all__ = ["Model", "in_memory", "read_exact", "save_exact"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """Everything that is needed to project new rows, and what is known about how well.

    Attributes
    ----------
    kernel : Kernel
        With resolved parameters.
    rows : Rows
        Training rows (n_samples, n_features), in memory or on disk, dense or sparse; `NoRows` of a precomputed kernel.
    tile_rows : int
        How many of them are read at a time.
    dtype : str
        Of the tiles that the eigenvectors come from.
    centering : Centering
        Means of the training Gram matrix.
    eigenvalues : ndarray of shape (k,), float64
        Of K̃, descending; those that count as zero are exactly 0.
    eigenvectors : ndarray of shape (n_samples, k), float64
        Unit columns.
    certificate : Certificate
    solver : str
        What found them.
    n_passes : int
        Visits of all tiles, from the first to the certificate's.
    feature_names : tuple of str
        Empty when the rows had none.
    preparation : Preparation or None
        How features are made of a table's columns, where they are not these columns as they are.
    way_back : RidgeMap or None
        From scores to rows, where one was learned.
    """

    kernel: Kernel
    rows: Rows
    tile_rows: int
    dtype: str
    centering: Centering
    eigenvalues: Vector
    eigenvectors: Matrix
    certificate: Certificate
    solver: str
    n_passes: int
    feature_names: tuple[str, ...] = ()
    preparation: Preparation | None = None
    way_back: RidgeMap | None = None

    @property
    def n_samples(self) -> int:
        """Training rows."""
        return self.rows.n_samples

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self.rows.n_features

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.eigenvalues)

    @property
    def dual_coefficients(self) -> Matrix:
        """α = v/√λ, shape (n_samples, k), so that αᵀK̃α = 1; 0 where λ is 0. [seed 000 eq 9]"""
        roots = np.sqrt(self.eigenvalues)
        return self.eigenvectors / np.where(roots == 0, np.inf, roots)

    @property
    def training_scores(self) -> Matrix:
        """Scores of the training rows, K̃α = v√λ, shape (n_samples, k)."""
        return self.eigenvectors * np.sqrt(self.eigenvalues)


def save_exact(model: Model, path: str | Path) -> None:
    """Write a model in a new directory; bytes: n_samples · (n_features · itemsize + 8·(k + 1)), and a map.

    The training rows are copied block by block; sparse ones take 4 bytes and their itemsize for an entry.
    """
    description = {
        "method": "exact",
        "kernel": model.kernel.to_json(),
        "n_samples": model.n_samples,
        "n_features": model.n_features,
        "rows": _form(model.rows),
        "rows_dtype": model.rows.dtype,
        "tile_rows": model.tile_rows,
        "dtype": model.dtype,
        "grand_mean": model.centering.grand_mean,
        "certificate": model.certificate.to_json(),
        "solver": model.solver,
        "n_passes": model.n_passes,
        "feature_names": list(model.feature_names),
        "preparation": None if model.preparation is None else model.preparation.to_json(),
        "ridge_pairs": ridge_pairs(model.way_back),
    }
    with new_model(path, description) as group:
        _write_arrays(model, group)
        if description["rows"] == "csr":
            write_sparse_rows(model.rows, _rows_path(Path(path)), batch_rows=model.tile_rows)
        elif description["rows"] == "dense":
            _write_dense(model.rows, group, model.tile_rows)


def in_memory(model: Model) -> Model:
    """The same model with training rows, if there are any, of its own in memory."""
    if isinstance(model.rows, NoRows):
        return model
    if isinstance(model.rows, SparseRows):  # which reads blocks with few features as dense ones
        return replace(model, rows=SparseRows(model.rows.matrix.copy()))
    rows = model.rows.read(slice(0, model.rows.n_samples))
    if isinstance(model.rows, ArrayRows):  # what is read from a file is new already
        rows = rows.copy()
    return replace(model, rows=SparseRows(rows) if is_sparse(rows) else ArrayRows(rows))


def read_exact(directory: Path, fields: dict[str, Any]) -> Model:
    """Model from a directory and its description; any exception when they do not belong together."""
    check_fields(fields, "n_samples", "n_features", "tile_rows", "n_passes", "ridge_pairs")
    model = _assemble(directory, fields)
    _check(model)
    return model


def _assemble(directory: Path, fields: dict[str, Any]) -> Model:
    eigenvalues = read_array(directory, "eigenvalues", 1)
    return Model(
        kernel=fields["kernel"],
        rows=_rows(directory, fields),
        tile_rows=fields["tile_rows"],
        dtype=fields["dtype"],
        centering=Centering(read_array(directory, "row_means", 1), float(fields["grand_mean"])),
        eigenvalues=eigenvalues,
        eigenvectors=read_array(directory, "eigenvectors", 2),
        certificate=Certificate.from_json(fields["certificate"]),
        solver=fields["solver"],
        n_passes=fields["n_passes"],
        feature_names=tuple(fields["feature_names"]),
        preparation=read_preparation(fields),
        way_back=read_ridge(directory, fields, len(eigenvalues)),
    )


def _rows(directory: Path, fields: dict[str, Any]) -> Rows:
    """The training rows of a description; any exception when they are not what is stored."""
    form, n_samples, n_features, dtype = (fields[name] for name in ("rows", "n_samples", "n_features", "rows_dtype"))
    if form == "none" and n_features == n_samples:
        return NoRows(n_samples)
    path = _rows_path(directory)
    if form == "csr":
        check_group(path)
        open_stored(path / "data", (dtype,), 1)
        fits = open_stored(path / "ends", ("int64",), 1).shape == (n_samples + 1,)
        rows: Rows = StoredSparseRows(str(path), n_samples, n_features, dtype)
    else:
        fits = form == "dense" and open_stored(path, (dtype,), 2).shape == (n_samples, n_features)
        rows = StoredRows(str(path), n_samples, n_features, dtype)
    if not fits or dtype not in ROW_DTYPES:
        raise ValueError(f"the training rows are not the {n_samples} × {n_features} {dtype} of model.json")
    return rows


def _rows_path(directory: Path) -> Path:
    return arrays_path(directory) / "rows"


def _form(rows: Rows) -> str:
    if isinstance(rows, NoRows):
        return "none"
    return "csr" if is_sparse(rows.read(slice(0, 1))) else "dense"


def _check(model: Model) -> None:
    n_samples, k = model.n_samples, model.n_components
    if model.eigenvectors.shape != (n_samples, k) or model.centering.row_means.shape != (n_samples,):
        raise ValueError(f"the arrays do not have the {n_samples} rows of model.json")
    check_finite(
        {
            "eigenvalues": model.eigenvalues,
            "eigenvectors": model.eigenvectors,
            "row_means": model.centering.row_means,
            "grand_mean": model.centering.grand_mean,
        }
    )
    if model.tile_rows < 1:
        raise ValueError("tile_rows is 0")


def _write_arrays(model: Model, group: Any) -> None:
    own = {
        "eigenvalues": model.eigenvalues,
        "eigenvectors": model.eigenvectors,
        "row_means": model.centering.row_means,
    }
    for name, values in {**own, **ridge_arrays(model.way_back)}.items():
        create_array(group, name, values.shape, "float64", model.tile_rows)[...] = values


def _write_dense(rows: Rows, group: Any, t: int) -> None:
    stored = create_array(group, "rows", (rows.n_samples, rows.n_features), rows.dtype, t)
    tiling = Tiling(rows.n_samples, t)
    for i in range(tiling.n_blocks):
        stored[tiling.block(i)] = rows.read(tiling.block(i))
