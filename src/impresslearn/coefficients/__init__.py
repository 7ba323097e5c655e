"""What a task learns: one file per parametrisation, and one coder for all of them.

`parametrisation` has the protocol and the containers; `masks`, `multipliers`, `readout` and
`deltas` are the parametrisations; `learning` trains them, `quantized_parameters` as integers whose
code length is part of the loss; `quantisation` rounds and writes them through `coding`.
"""

from impresslearn.coefficients import deltas as deltas
from impresslearn.coefficients import masks as masks
from impresslearn.coefficients import multipliers as multipliers
from impresslearn.coefficients import readout as readout
from impresslearn.coefficients.parametrisation import Coefficients as Coefficients
from impresslearn.coefficients.parametrisation import CoefficientSpec as CoefficientSpec
from impresslearn.coefficients.parametrisation import Parametrisation as Parametrisation
from impresslearn.coefficients.parametrisation import Start as Start
from impresslearn.coefficients.parametrisation import (
    register_parametrisation as register_parametrisation,
)
from impresslearn.coefficients.quantisation import Grid as Grid
from impresslearn.coefficients.quantisation import TensorLayout as TensorLayout
