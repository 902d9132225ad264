"""Nyström approximation: streaming, centred, mergeable, with an error bound."""

from scalable_kpca.nystroem.accumulators import Accumulators, accumulate, in_features
from scalable_kpca.nystroem.basis import Basis, build_basis
from scalable_kpca.nystroem.certificate import NystroemCertificate
from scalable_kpca.nystroem.checkpoint import SumsCheckpoint
from scalable_kpca.nystroem.projection import Projection
from scalable_kpca.nystroem.spectrum import Spectrum, leading_pairs, solve_spectrum, trace_residual
from scalable_kpca.nystroem.start import nystroem_block

__all__ = [
    "Accumulators",
    "Basis",
    "NystroemCertificate",
    "Projection",
    "Spectrum",
    "SumsCheckpoint",
    "accumulate",
    "build_basis",
    "in_features",
    "leading_pairs",
    "nystroem_block",
    "solve_spectrum",
    "trace_residual",
]
