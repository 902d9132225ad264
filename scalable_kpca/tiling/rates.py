"""How fast a machine is: the rates that `calibration` measures, and nominal ones where nothing was measured.

A rate of arithmetic is that of one thread while all threads work, since they share the memory's bandwidth; a rate of a
disk is that of all together.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MachineRates", "ProductRate", "nominal_rates"]


@dataclass(frozen=True)
class ProductRate:
    """Seconds that one entry of a tile takes on its way through both products.

    Attributes
    ----------
    entry : float
        Whatever the width of the block.
    column : float
        For each column.
    measure : float
        More in passes that measure sums and norm.
    """

    entry: float
    column: float
    measure: float


@dataclass(frozen=True)
class MachineRates:
    """How fast this machine does what an exact fit consists of, for one kernel and one dtype of tiles.

    Attributes
    ----------
    entry, feature : float
        Seconds to evaluate an entry of K, and for each feature in addition.
    fold : float
        Seconds to prepare one number of a row for a tile.
    keep : float
        Seconds to write a byte of a tile into fresh memory.
    single, double : ProductRate
        Products in float32 and in float64.
    gemm : float
        Seconds a flop of a matrix product in float32.
    lapack : float
        Seconds of a dense eigenproblem of size n over n³, one thread.
    orthogonalise : float
        Seconds for each row, column of the block and column of the basis in a block Krylov step.
    write, flush, read, reread : float
        Bytes a second of stored tiles: written to the page cache, flushed to the disk, read from it, read from the page
        cache; checksums and copies included.
    cache_bytes : int
        What the page cache may hold.
    stage : float
        Seconds to check and take over one number of the caller's rows.
    task : float
        Seconds to schedule one task.
    is_measured : bool
        Whether these were measured on this machine, or are those of the machine named in `nominal_rates`.
    """

    entry: float
    feature: float
    fold: float
    keep: float
    single: ProductRate
    double: ProductRate
    gemm: float
    lapack: float
    orthogonalise: float
    write: float
    flush: float
    read: float
    reread: float
    cache_bytes: int
    stage: float = 3e-9
    task: float = 3e-4
    is_measured: bool = False

    def product(self, dtype: str) -> ProductRate:
        """Rate of products in a dtype."""
        return self.single if dtype == "float32" else self.double


# seconds an entry beside the matrix product, and a feature, in float32; float64 takes twice as long
_NOMINAL_KERNELS = {
    "linear": (0.3e-9, 0.035e-9),
    "cosine": (0.3e-9, 0.035e-9),
    "poly": (1.0e-9, 0.035e-9),
    "rbf": (1.4e-9, 0.035e-9),
    "sigmoid": (4e-9, 0.035e-9),
    "matern12": (2e-9, 0.035e-9),
    "matern32": (2.5e-9, 0.035e-9),
    "matern52": (3e-9, 0.035e-9),
    "laplacian": (4e-9, 0.5e-9),  # no matrix product: city-block distances, coordinate by coordinate
}


def nominal_rates(kernel: str, dtype: str) -> MachineRates:
    """Rates of a cloud machine with two cores: RBF, 64 features, 22 columns: 0.15 G entries a second and core.

    Parameters
    ----------
    kernel : str
        Name; one that is not known counts as RBF.
    dtype : {"float32", "float64"}
        Of the tiles.

    Returns
    -------
    MachineRates
        Not measured: good for comparing plans, a guess as to seconds.
    """
    entry, feature = _NOMINAL_KERNELS.get(kernel, _NOMINAL_KERNELS["rbf"])
    factor = 2 if dtype == "float64" and kernel != "laplacian" else 1
    return MachineRates(
        entry=factor * entry,
        feature=factor * feature,
        fold=10e-9,
        keep=1e-9,
        single=ProductRate(entry=0.4e-9, column=0.11e-9, measure=1.2e-9),
        double=ProductRate(entry=0.9e-9, column=0.22e-9, measure=1.2e-9),
        gemm=1 / 60e9,
        lapack=3e-10,
        orthogonalise=2e-9,
        write=0.6e9,
        flush=0.4e9,
        read=0.8e9,
        reread=3e9,
        cache_bytes=4 * 2**30,
    )
