"""An exact model: training rows, eigenpairs of their centred Gram matrix, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.centering import Centering
from scalable_kpca.certificate import Certificate
from scalable_kpca.kernels import Kernel, kernel_from_json
from scalable_kpca.model.files import check_finite, create_array, new_model, open_arrays
from scalable_kpca.source import ArrayRows, Rows, StoredRows
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
        Training rows (n_samples, n_features), in memory or on disk.
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
    """Write a model in a new directory; bytes: n_samples · (n_features · itemsize + 8·(k + 1)).

    The training rows are copied block by block.
    """
    description = {
        "method": "exact",
        "kernel": model.kernel.to_json(),
        "n_samples": model.n_samples,
        "n_features": model.n_features,
        "rows_dtype": model.rows.dtype,
        "tile_rows": model.tile_rows,
        "dtype": model.dtype,
        "grand_mean": model.centering.grand_mean,
        "certificate": model.certificate.to_json(),
        "solver": model.solver,
        "n_passes": model.n_passes,
        "feature_names": list(model.feature_names),
    }
    with new_model(path, description) as group:
        _write_arrays(model, group)


def in_memory(model: Model) -> Model:
    """The same model with its training rows read into memory."""
    return replace(model, rows=ArrayRows(model.rows.read(slice(0, model.rows.n_samples))))


def read_exact(directory: Path, fields: dict[str, Any]) -> Model:
    """Model from a directory and its description; any exception when they do not belong together."""
    model = _assemble(directory, fields)
    _check(model)
    return model


def _assemble(directory: Path, fields: dict[str, Any]) -> Model:
    group = open_arrays(directory)
    eigenvalues, eigenvectors, row_means = (
        np.asarray(group[name][...], np.float64) for name in ("eigenvalues", "eigenvectors", "row_means")
    )
    n_samples, n_features = fields["n_samples"], fields["n_features"]
    if group["rows"].shape != (n_samples, n_features) or group["rows"].dtype.name != fields["rows_dtype"]:
        raise ValueError(
            f"the training rows are not the {n_samples} × {n_features} {fields['rows_dtype']} of model.json"
        )
    return Model(
        kernel=kernel_from_json(fields["kernel"]),
        rows=StoredRows(str(directory / "arrays.zarr" / "rows"), n_samples, n_features, fields["rows_dtype"]),
        tile_rows=fields["tile_rows"],
        dtype=fields["dtype"],
        centering=Centering(row_means, float(fields["grand_mean"])),
        eigenvalues=eigenvalues,
        eigenvectors=eigenvectors,
        certificate=Certificate.from_json(fields["certificate"]),
        solver=fields["solver"],
        n_passes=fields["n_passes"],
        feature_names=tuple(fields["feature_names"]),
    )


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
    if not isinstance(model.tile_rows, int) or model.tile_rows < 1:
        raise ValueError(f"tile_rows is {model.tile_rows!r}")


def _write_arrays(model: Model, group: Any) -> None:
    rows, t = model.rows, model.tile_rows
    for name, values in (
        ("eigenvalues", model.eigenvalues),
        ("eigenvectors", model.eigenvectors),
        ("row_means", model.centering.row_means),
    ):
        create_array(group, name, values.shape, "float64", t)[...] = values
    stored = create_array(group, "rows", (rows.n_samples, rows.n_features), rows.dtype, t)
    tiling = Tiling(rows.n_samples, t)
    for i in range(tiling.n_blocks):
        stored[tiling.block(i)] = rows.read(tiling.block(i))
