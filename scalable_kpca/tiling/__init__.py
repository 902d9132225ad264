"""Integers and rates: tiles, tasks, bytes, passes and seconds of an exact fit, and the plan that chooses among them."""

from scalable_kpca.tiling.choices import (
    DENSE_LIMIT,
    GRAM_HOMES,
    LANDMARK_METHODS,
    SOLVERS,
    check_choice,
    check_components,
    check_whole,
    is_few,
    is_number,
    is_whole,
)
from scalable_kpca.tiling.footprint import BLOCK_ROWS, KMEANS_ROWS, MOMENT_BYTES, PIVOT_BYTES, WAVE, moment_bytes
from scalable_kpca.tiling.homes import Alternative
from scalable_kpca.tiling.plan import Plan, plan_exact
from scalable_kpca.tiling.rates import MachineRates, ProductRate, nominal_rates
from scalable_kpca.tiling.sizes import (
    CERTIFIED_COLUMNS,
    LARGEST_TILE,
    PROBE_BYTES,
    PROCESS_BYTES,
    RANDOM_COLUMNS,
    SQUARE_ARRAYS,
    arpack_vectors,
    segment_width,
)
from scalable_kpca.tiling.stream_plan import NystroemPlan
from scalable_kpca.tiling.streams import plan_nystroem, rows_of_batch
from scalable_kpca.tiling.tiles import Tiling

__all__ = [
    "BLOCK_ROWS",
    "CERTIFIED_COLUMNS",
    "DENSE_LIMIT",
    "GRAM_HOMES",
    "KMEANS_ROWS",
    "LANDMARK_METHODS",
    "LARGEST_TILE",
    "MOMENT_BYTES",
    "PIVOT_BYTES",
    "PROBE_BYTES",
    "PROCESS_BYTES",
    "RANDOM_COLUMNS",
    "SOLVERS",
    "SQUARE_ARRAYS",
    "WAVE",
    "Alternative",
    "MachineRates",
    "NystroemPlan",
    "Plan",
    "ProductRate",
    "Tiling",
    "arpack_vectors",
    "check_choice",
    "check_components",
    "check_whole",
    "is_few",
    "is_number",
    "is_whole",
    "moment_bytes",
    "nominal_rates",
    "plan_exact",
    "plan_nystroem",
    "rows_of_batch",
    "segment_width",
]
