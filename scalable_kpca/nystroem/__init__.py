"""Nyström approximation: streaming, centred, mergeable, with an error bound."""

from scalable_kpca.nystroem.accumulators import Accumulators, accumulate, in_features
from scalable_kpca.nystroem.basis import Basis, build_basis
from scalable_kpca.nystroem.centre import Centre, find_centre
from scalable_kpca.nystroem.certificate import NystroemCertificate
from scalable_kpca.nystroem.checkpoint import SumsCheckpoint
from scalable_kpca.nystroem.passes import Spans, accumulate_spans, approximate_eigenvectors, training_scores
from scalable_kpca.nystroem.projection import Projection
from scalable_kpca.nystroem.spectrum import Spectrum, relative_residual, solve_spectrum, trace_residual
from scalable_kpca.nystroem.start import nystroem_block

__all__ = [
    "Accumulators",
    "Basis",
    "Centre",
    "NystroemCertificate",
    "Projection",
    "Spans",
    "Spectrum",
    "SumsCheckpoint",
    "accumulate",
    "accumulate_spans",
    "approximate_eigenvectors",
    "build_basis",
    "find_centre",
    "in_features",
    "nystroem_block",
    "relative_residual",
    "solve_spectrum",
    "trace_residual",
    "training_scores",
]
