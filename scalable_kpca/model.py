"""A fitted kernel PCA: numbers in a frozen object, saved as JSON and zarr, loaded without executing anything."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.centering import Centering
from scalable_kpca.certificate import Certificate
from scalable_kpca.errors import ModelFormatError, StorageError, storage_errors
from scalable_kpca.kernels import Kernel, kernel_from_json
from scalable_kpca.source import ArrayRows, Rows, StoredRows, checked_codecs
from scalable_kpca.tiling import Tiling

__all__ = ["Model", "in_memory", "load_model", "save_model"]

FORMAT_VERSION = 2

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


def save_model(model: Model, path: str | Path) -> None:
    """Write a model as ``model.json`` and ``arrays.zarr`` in a new directory.

    Parameters
    ----------
    model : Model
        What to write.
    path : str or Path
        Directory that does not exist or is empty.

    Raises
    ------
    StorageError
        When the directory holds something or cannot be written.

    Notes
    -----
    Bytes: n_samples · (n_features · itemsize + 8·(k + 1)). The training rows are copied block by block.
    """
    directory = Path(path)
    with storage_errors(f"writing the model to {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise StorageError(f"{directory} is not empty; save a model in a new directory.")
        _write_arrays(model, directory / "arrays.zarr")
        description = {
            "format": "scalable_kpca model",
            "format_version": FORMAT_VERSION,
            "kernel": model.kernel.to_json(),
            "n_samples": model.rows.n_samples,
            "n_features": model.rows.n_features,
            "rows_dtype": model.rows.dtype,
            "tile_rows": model.tile_rows,
            "dtype": model.dtype,
            "grand_mean": model.centering.grand_mean,
            "certificate": model.certificate.to_json(),
            "solver": model.solver,
            "n_passes": model.n_passes,
            "feature_names": list(model.feature_names),
        }
        (directory / "model.json").write_text(json.dumps(description, indent=1))


def load_model(path: str | Path) -> Model:
    """Model from a directory that `save_model` wrote; the training rows stay on disk until they are needed.

    Raises
    ------
    ModelFormatError
        When the directory is no model, or one of a format that this version does not read.
    """
    directory = Path(path)
    fields = _read_description(directory)
    try:
        model = _assemble(directory, fields)
        _check(model)
    except Exception as error:
        raise ModelFormatError(f"{directory} is damaged or incomplete: {error}.") from error
    return model


def in_memory(model: Model) -> Model:
    """The same model with its training rows read into memory."""
    return replace(model, rows=ArrayRows(model.rows.read(slice(0, model.rows.n_samples))))


def _read_description(directory: Path) -> dict[str, Any]:
    file = directory / "model.json"
    try:
        fields = json.loads(file.read_text())
    except OSError as error:
        raise ModelFormatError(
            f"{directory} holds no model.json that can be read: {error.strerror or error}."
        ) from error
    except ValueError as error:
        raise ModelFormatError(f"{file} is damaged: {error}.") from error
    if not isinstance(fields, dict):
        raise ModelFormatError(f"{file} is damaged: it holds no description of a model.")
    found = fields.get("format_version")
    if found != FORMAT_VERSION:
        raise ModelFormatError(f"{directory} has model format {found!r}; this version reads {FORMAT_VERSION}.")
    return fields


def _assemble(directory: Path, fields: dict[str, Any]) -> Model:
    import zarr

    arrays = directory / "arrays.zarr"
    group: Any = zarr.open_group(str(arrays), mode="r")
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
        rows=StoredRows(str(arrays / "rows"), n_samples, n_features, fields["rows_dtype"]),
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
    n_samples, k = model.rows.n_samples, model.n_components
    if model.eigenvectors.shape != (n_samples, k) or model.centering.row_means.shape != (n_samples,):
        raise ValueError(f"the arrays do not have the {n_samples} rows of model.json")
    for name, values in (
        ("eigenvalues", model.eigenvalues),
        ("eigenvectors", model.eigenvectors),
        ("row_means", model.centering.row_means),
        ("grand_mean", model.centering.grand_mean),
    ):
        # a chunk that is gone reads as NaN
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has entries that are missing or not finite")
    if not isinstance(model.tile_rows, int) or model.tile_rows < 1:
        raise ValueError(f"tile_rows is {model.tile_rows!r}")


def _write_arrays(model: Model, path: Path) -> None:
    import zarr

    codecs = checked_codecs()
    group = zarr.create_group(str(path))
    t = model.tile_rows
    for name, values in (
        ("eigenvalues", model.eigenvalues),
        ("eigenvectors", model.eigenvectors),
        ("row_means", model.centering.row_means),
    ):
        chunks = tuple(
            max(1, min(t, length)) if axis == 0 else max(1, length) for axis, length in enumerate(values.shape)
        )
        group.create_array(name, shape=values.shape, chunks=chunks, dtype="float64", **codecs)[...] = values
    rows = model.rows
    stored = group.create_array(
        "rows",
        shape=(rows.n_samples, rows.n_features),
        chunks=(t, rows.n_features),
        dtype=rows.dtype,
        **codecs,
    )
    tiling = Tiling(rows.n_samples, t)
    for i in range(tiling.n_blocks):
        stored[tiling.block(i)] = rows.read(tiling.block(i))
