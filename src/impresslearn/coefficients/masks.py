"""Mixtures of masks: the paper's coefficients, W ⊙ Σ_t α_t M^t (eq. 1)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import (
    CODED_SPEED,
    Coefficients,
    CoefficientSpec,
    Mixture,
    Parametrisation,
    Start,
    Starts,
    Tensors,
    Weights,
    register_parametrisation,
)
from impresslearn.coefficients.quantisation import TensorLayout
from impresslearn.errors import InputError
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer

# The initial RMS weight of coded mixtures is at most this times sqrt(2 / fan_in), He's initial RMS.
FIRST_GAIN = 0.5
FIRST_STEP = 0.5  # the first step of coded alphas, relative to the initial weights
# The first step of alphas that change pretrained weights, relative to these weights.
RESIDUAL_STEP = 0.05
# `Start.speed` of coded alphas per output unit: there are many, and each scales few weights.
SPEED_PER_OUTPUT_UNIT = 2.5
TINY = 1e-30
EMPTY = "the bank is empty; call learn_basis or add_random_masks (or: learn --basis, new --masks)"


@dataclass(frozen=True)
class MaskMixture(Parametrisation):
    """Coefficients over the first N masks of the bank, one α per mask and layer as in the paper.

    - per_unit: one α per mask and output unit, (N, units) per layer, instead of (N,).
    - output_scale: whether each layer also has a learned scale per output unit, (units,).
    - residual: the learner's start="network", W ⊙ (1 + Σ α M) instead of W ⊙ Σ α M.
    """

    per_unit: bool = False
    output_scale: bool = False
    residual: bool = False

    kind = "masks"
    uses_masks = True

    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        """The alphas of each layer, then the scales of each layer."""
        tensors = []
        for layer in backbone.layers:
            shape = (num_masks, layer.units) if self.per_unit else (num_masks,)
            tensors.append(TensorLayout(f"alpha.{layer.name}", shape))
        if self.output_scale:
            for layer in backbone.layers:
                tensors.append(TensorLayout(f"scale.{layer.name}", (layer.units,), around_one=True))
        return tensors

    def start(self, backbone: Backbone, bank: MaskBank, num_masks: int, coded: bool) -> Starts:
        """Alphas start at 1/N, the paper's uniform prior, or at 0 if residual; scales start at 1.

        Coded alphas without `residual` start at an equal value that gives each layer the RMS weight
        of the backbone, or FIRST_GAIN times the RMS of He's initialisation if that is less.
        """
        if num_masks < 1:
            raise InputError(EMPTY)
        alphas = [Start(0.0 if self.residual else 1 / num_masks)] * len(backbone.layers)
        if coded:
            alphas = self._coded_start(backbone, bank, num_masks)
        if self.output_scale:
            alphas += [Start(1.0)] * len(backbone.layers)
        return alphas

    def weights(self, backbone: Backbone, bank: MaskBank, tensors: Tensors) -> Weights:
        alphas, scales = self.mixture(tensors)
        return mix(bank, backbone.weights, alphas, scales, self.residual)

    def mixture(self, tensors: Tensors) -> Mixture:
        half = len(tensors) // 2 if self.output_scale else len(tensors)
        return tuple(tensors[:half]), tuple(tensors[half:]) or None

    @torch.no_grad()
    def _coded_start(self, backbone: Backbone, bank: MaskBank, num_masks: int) -> list[Start]:
        """Start values and steps; steps are smaller if more masks cover each weight."""
        # Alphas that change pretrained weights keep the usual speed even per unit.
        slow = self.per_unit and not self.residual
        speed = SPEED_PER_OUTPUT_UNIT if slow else CODED_SPEED
        ones = torch.ones(num_masks, dtype=torch.float32, device=bank.device)
        sums = mix(bank, backbone.weights, [ones] * len(bank.layers))
        starts = []
        for number, layer in enumerate(bank.layers):
            size = max(_rms(backbone.weights[layer.name]), TINY)
            wanted = min(size, FIRST_GAIN * math.sqrt(2 / layer.fan_in))
            covering = sum(info.ones[number] for info in bank.infos[:num_masks]) / layer.numel
            # The steps of the masks that cover a weight add up like independent random numbers.
            root = math.sqrt(max(covering, 1 / layer.numel))
            if self.residual:
                starts.append(Start(0.0, RESIDUAL_STEP / root, speed))
                continue
            equal = wanted / max(_rms(sums[layer.name]), size / layer.numel)
            starts.append(Start(equal, FIRST_STEP * wanted / (size * root), speed))
        return starts


def mix(
    bank: MaskBank,
    frozen: Mapping[str, Tensor],
    alphas: Sequence[Tensor],
    scales: Sequence[Tensor] | None = None,
    residual: bool = False,
) -> dict[str, Tensor]:
    """Layer name -> W ⊙ Σ α M, or W ⊙ (1 + Σ α M), times scales; differentiable in α and scales.

    - frozen: the backbone's maskable weights by layer name.
    - alphas: (N,) or (N, units) per layer, for the first N masks; scales: (units,) per layer.

    Raises InputError for more alphas than the bank has masks.
    """
    weights = [frozen[layer.name] for layer in bank.layers]
    bits = [bank.bits(number, len(alpha)) for number, alpha in enumerate(alphas)]
    mixed = {}
    for number, product in enumerate(mix_layers(bits, alphas, weights)):
        if residual:
            product = weights[number] + product
        if scales is not None:
            scale = scales[number].to(product.dtype)
            product = product * scale.reshape(-1, *[1] * (product.dim() - 1))
        mixed[bank.layers[number].name] = product
    return mixed


def masked_weights(bank: MaskBank, weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The weights under one mask of the bank, layer name -> W ⊙ M, without reading other masks."""
    _, packed = bank.packed(bank.index(name))
    one = torch.ones(1, dtype=torch.float32, device=bank.device)
    frozen = [weights[layer.name] for layer in bank.layers]
    mixed = mix_layers([bits[None] for bits in packed], [one] * len(packed), frozen)
    return dict(zip(weights, mixed, strict=True))


def equal_alphas(bank: MaskBank) -> list[Tensor]:
    """α = 1/N for each mask, (N,) per layer. Raises InputError without masks."""
    if not len(bank):
        raise InputError(EMPTY)
    ones = torch.ones(len(bank), dtype=torch.float32, device=bank.device)
    return [ones / len(bank) for _ in bank.layers]


def mixture_of(shares: Tensor, layers: Sequence[MaskableLayer]) -> Coefficients:
    """Coefficients that give each mask the same share (N,) in every layer."""
    return Coefficients((MaskMixture(),), (tuple(shares.clone() for _ in layers),), len(shares))


def _rms(tensor: Tensor) -> float:
    return float(tensor.float().square().mean().sqrt())


def _made(spec: CoefficientSpec) -> MaskMixture:
    return MaskMixture(spec.granularity == "unit", spec.output_scale, spec.residual)


register_parametrisation(MaskMixture, {"layer": _made, "unit": _made})
