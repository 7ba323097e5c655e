"""What a task learns: coefficients over the masks, their rounding and their code."""

from impresslearn.coefficients.learning import CoefficientTraining, learn_coefficients
from impresslearn.coefficients.mixing import (
    Coefficients,
    CoefficientSpec,
    Granularity,
    mixed_weights,
    uniform_coefficients,
)
from impresslearn.coefficients.quantisation import (
    PRECISIONS,
    Precision,
    StoredCoefficients,
    store_coefficients,
)

__all__ = [
    "PRECISIONS",
    "CoefficientSpec",
    "CoefficientTraining",
    "Coefficients",
    "Granularity",
    "Precision",
    "StoredCoefficients",
    "learn_coefficients",
    "mixed_weights",
    "store_coefficients",
    "uniform_coefficients",
]
