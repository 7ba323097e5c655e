"""What a task learns: one file per parametrisation, and one coder for all of them.

`parametrisation` has the protocol and the containers; `masks`, `multipliers`, `readout` and
`deltas` are the parametrisations; `learning` trains them, `quantized_parameters` as integers whose
code length is part of the loss; `quantisation` rounds and writes them through `coding`.
"""

from impresslearn.coefficients import deltas, masks, multipliers, readout
from impresslearn.coefficients.parametrisation import (
    Coefficients,
    CoefficientSpec,
    Parametrisation,
    Start,
    register_parametrisation,
)
from impresslearn.coefficients.quantisation import Grid, TensorLayout

__all__ = [
    "CoefficientSpec",
    "Coefficients",
    "Grid",
    "Parametrisation",
    "Start",
    "TensorLayout",
    "deltas",
    "masks",
    "multipliers",
    "readout",
    "register_parametrisation",
]
