"""Plans for this machine, by rates that are measured on it."""

from scalable_kpca.planning.calibration import cache_file, machine_rates
from scalable_kpca.planning.plans import ALGORITHM_VERSION, gram_fingerprint, plan

__all__ = ["ALGORITHM_VERSION", "cache_file", "gram_fingerprint", "machine_rates", "plan"]
