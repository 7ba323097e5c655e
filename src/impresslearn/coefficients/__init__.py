"""The numbers that a task learns: their kinds (parametrisations), training, rounding and coding.

`parametrisation` defines the base class. `masks`, `multipliers`, `readout` and `deltas` implement
it. `learning` trains the numbers, with `quantized_parameters` as integers whose code length is part
of the loss. `quantisation` rounds the numbers, and `coding` writes integers as bytes.
"""

from impresslearn.coefficients import deltas as deltas
from impresslearn.coefficients import masks as masks
from impresslearn.coefficients import multipliers as multipliers
from impresslearn.coefficients import readout as readout
from impresslearn.coefficients.parametrisation import Parametrisation as Parametrisation
from impresslearn.coefficients.parametrisation import Start as Start
from impresslearn.coefficients.parametrisation import (
    register_parametrisation as register_parametrisation,
)
from impresslearn.coefficients.quantisation import TensorLayout as TensorLayout
