"""Kernels that mix packed masks into weights, with gradients: CPU, GPU and reference."""

from impresslearn.kernels.functions import implementation as implementation
from impresslearn.kernels.functions import mix as mix
from impresslearn.kernels.functions import mix_layers as mix_layers
from impresslearn.kernels.reference import pack as pack
from impresslearn.kernels.reference import popcount as popcount
from impresslearn.kernels.reference import row_bytes as row_bytes
from impresslearn.kernels.reference import unpack as unpack
