"""Adapters of PEFT (parameter-efficient fine-tuning) as methods over a frozen network.

| kind | parameters that a task trains and keeps | setting of their number |
|---|---|---|
| lora | B (units, r) and A (r, fan-in), W + B A (Hu et al. 2022) | rank |
| vera | b and d, W + diag(b) B diag(d) A (Kopiczko et al. 2024) | rank |
| unilora | one vector, whose entries fill all B and A (Uni-LoRA, Li et al. 2025) | theta_d_length |
| randlora | diagonals between n random pairs of factors (Albert et al. 2025) | n = width / rank |
| vblora | vectors; each piece of B and A mixes topk of them (Li et al. 2024) | num_vectors, rank |
| fourierft | coefficients of the change's Fourier transform (Gao et al. 2024) | n_frequency |
| bilora | LoRA's B and A with one bit per number (Jie et al. 2023) | rank |
| lora_xs | R (r, r) between frozen singular vectors of W (Bałazy et al. 2024) | rank |
| tinylora | u numbers for all layers, R = Σ v_i P_i (Morris et al. 2026) | u |

Random factors, positions and frequencies are drawn again from the seed, so they cost no bytes. The
kernel of a convolution counts as a matrix (units, fan-in).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from impresslearn.checks import check_choice
from impresslearn.coefficients.quantisation import Grid, TensorLayout, rounded_tensors
from impresslearn.coefficients.quantized_parameters import QuantizedParameters
from impresslearn.errors import InputError
from impresslearn.methods.finetuning import FineTuning
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MASKABLE, MaskableLayer
from impresslearn.streams.torchvision import import_extra
from impresslearn.training.loop import Trainable, Weights

LONGEST_VECTOR = 256  # VB-LoRA's vectors: the widths' greatest divisor up to its paper's length
UNUSED = -1e9  # the logit of a vector that is not among the topk
# For factors that are learned as integers: the rounding step at the start, as a share of their
# standard deviation (or for zeros), and a factor on the learning rate, which Adam allows.
FIRST_STEP, FIRST_STEP_OF_ZEROS = 1.0, 0.2
CODED_SPEED = 10.0
# For factors with one bit per number: the median magnitude of a standard normal, and B's start.
ONE_BIT, FIRST_ONE_BIT = 0.6745, 0.001


@dataclass(frozen=True)
class AdapterKind:
    """One kind of adapter.

    - config: the name of PEFT's configuration class
    - lr: Adam's learning rate in the default recipe, the best one on a task of permuted MNIST
    - settings: settings of PEFT, in place of its defaults
    - rank: the default rank; None for kinds without a rank
    - alpha: the name of PEFT's setting for scale times rank, and the scale of the change
    - seed: the name of PEFT's setting for the seed of the random parts
    - free: whether all entries of TinyLoRA's R are learned; this is LoRA-XS
    - one_bit: whether factors are learned with one bit per number
    """

    config: str
    lr: float
    settings: Mapping[str, Any]
    rank: int | None = 4
    alpha: tuple[str, float] | None = None
    seed: str = ""
    free: bool = False
    one_bit: bool = False


UNI_LORA = {"theta_d_length": 256, "init_theta_d_bound": 0.02}
VB_LORA = {"num_vectors": 256, "topk": 2, "init_vector_bank_bound": 0.02, "init_logits_std": 0.1}
TINY = {"u": 64, "weight_tying": 1.0}
FOURIER = {"n_frequency": 256, "scaling": 150.0, "init_weights": True}
# At higher rates FourierFT learns more, but its numbers then spread too widely for 15 levels (1,000
# frequencies, ten epochs: 93.0% in float32 and 58.1% coded at 0.01; 89.5% coded at 0.003). It
# starts without a change: PEFT's default, random coefficients, costs it 17 points.
ADAPTERS: dict[str, AdapterKind] = {
    "lora": AdapterKind("LoraConfig", 0.01, {}, alpha=("lora_alpha", 2.0)),
    "vera": AdapterKind("VeraConfig", 0.05, {"d_initial": 0.1}, seed="projection_prng_key"),
    "unilora": AdapterKind("UniLoraConfig", 0.03, UNI_LORA, seed="proj_seed"),
    "randlora": AdapterKind(
        "RandLoraConfig",
        0.003,
        {"sparse": False},
        32,
        ("randlora_alpha", 20),
        "projection_prng_key",
    ),
    "vblora": AdapterKind("VBLoRAConfig", 0.03, VB_LORA),
    "fourierft": AdapterKind("FourierFTConfig", 0.003, FOURIER, None, seed="random_loc_seed"),
    # The best rates of these three depend on the network: see small_tasks.toml.
    "bilora": AdapterKind("LoraConfig", 0.003, {}, alpha=("lora_alpha", 2.0), one_bit=True),
    "lora_xs": AdapterKind("TinyLoraConfig", 0.001, {}, 8, free=True),
    "tinylora": AdapterKind("TinyLoraConfig", 0.001, TINY, 2, seed="projection_seed"),
}


def adapter(
    backbone: Backbone,
    kind: str = "lora",
    *,
    rank: int | None = None,
    config: Mapping[str, Any] | None = None,
    precision: str = "float32",
    largest: int | None = None,
    bit_price: float | None = None,
    **settings: Any,
) -> FineTuning:
    """Trains an adapter of PEFT for every task, on linear layers and convolutions.

    - kind: one of `ADAPTERS`
    - rank: r; by default 4, or the kind's own. RandLoRA (32) has fewer numbers at higher ranks
    - config: further settings under PEFT's names, such as num_vectors
    - precision, largest: after training, numbers are rounded to this precision, with integers up to
      `largest`; predictions use the rounded numbers
    - bit_price: only for LoRA with precision "coded": its factors are learned as integers, and the
      loss includes their code length times this price per bit
    - settings: settings of `FineTuning`
    """
    check_choice("kind", kind, ADAPTERS)
    chosen = ADAPTERS[kind]
    layers = [layer for layer in backbone.layers if _is_adaptable(backbone, layer)]
    if not layers:
        raise InputError(f"PEFT's {kind} has no layer to adapt in {backbone.name}")
    if bit_price is not None and (kind, precision) != ("lora", "coded"):
        raise InputError('bit_price is for kind="lora" and precision="coded" alone')
    rank = chosen.rank if rank is None else rank
    config = _config(chosen, layers, rank, config or {})
    seed = settings.get("seed", 0)

    def make_trainable(examples: int) -> Trainable:
        network = _adapted(backbone, chosen, layers, config, seed)
        changes = _Changes(network, layers, backbone.weights, by_unit=kind == "fourierft")
        if bit_price is not None:
            return _priced(changes, bit_price / examples)
        if chosen.one_bit:
            return _one_bit(changes)

        def result() -> tuple[Weights, int]:
            size = round_adapter(changes.trained, precision, largest, config)
            return changes.added(), size

        return Trainable(list(changes.trained.values()), lambda: (changes.added(), 0.0), result)

    return FineTuning(backbone, make_trainable=make_trainable, precision=precision, **settings)


class _Changes(nn.Module):
    """An adapted network as a module that returns the change of each layer's weights, by name.

    - frozen: the weights to change
    - by_unit: whether a change is (units, fan-in) even if the parameter is (fan-in, units)
    """

    def __init__(
        self, network: nn.Module, layers: Sequence[MaskableLayer], frozen: Weights, by_unit: bool
    ) -> None:
        super().__init__()
        self.network, self._layers = network, layers
        self._frozen, self._by_unit = frozen, by_unit
        self.trained = {name: p for name, p in self.named_parameters() if p.requires_grad}

    def forward(self) -> Weights:
        changes = {}
        for layer in self._layers:
            module: Any = self.network.get_submodule(_module(layer))
            change = module.get_delta_weight("default")
            if not self._by_unit:
                change = layer.of(change)
            changes[layer.name] = change.reshape(layer.shape)
        return changes

    def added(self, values: Sequence[Tensor] | None = None) -> Weights:
        """The weights plus their changes. values: used in place of the trained parameters."""
        given = {} if values is None else dict(zip(self.trained, values, strict=True))
        changes = torch.func.functional_call(self, given, ())
        return {name: self._frozen[name] + change for name, change in changes.items()}


def _priced(changes: _Changes, price: float) -> Trainable:
    """LoRA's factors, learned as integers whose code length is part of the loss.

    - price: the price of a bit in nats, divided by the number of examples
    """
    first, grids = list(changes.trained.values()), []
    for factor in first:
        step = FIRST_STEP * float(factor.detach().std()) or FIRST_STEP_OF_ZEROS
        grids.append(Grid(step, 0.0))
    shapes, speeds = [tuple(factor.shape) for factor in first], [CODED_SPEED] * len(first)
    numbers = QuantizedParameters(shapes, grids, speeds, first[0].device)
    numbers.set(0, first)

    def weights() -> tuple[Weights, Tensor]:
        return changes.added(numbers.values()), numbers.bits() * (price * math.log(2))

    def result() -> tuple[Weights, int]:
        values, grids = numbers.result()
        rounded, size = rounded_tensors(values, "coded", grids=grids)
        return changes.added(rounded), size

    return Trainable(numbers.parameters, weights, result)


def _one_bit(changes: _Changes) -> Trainable:
    """LoRA's factors with one bit per number: a task keeps signs, and a mean and std per factor."""
    factors = list(changes.trained.values())

    def kept() -> list[Tensor]:
        values = []
        for factor in factors:
            mean, deviation = factor.mean(), factor.std()
            normal = (factor - mean) / (deviation + 1e-5)
            signs = torch.where(normal < 0, -ONE_BIT, ONE_BIT)
            # Straight-through: the gradient is as if the number were not rounded.
            values.append(mean + deviation * (normal + (signs - normal).detach()))
        return values

    def result() -> tuple[Weights, int]:
        grids = [Grid(ONE_BIT * float(each.std()), float(each.mean())) for each in factors]
        rounded, size = rounded_tensors(kept(), "coded", grids=grids)
        return changes.added(rounded), size

    return Trainable(factors, lambda: (changes.added(kept()), 0.0), result)


def _config(
    kind: AdapterKind, layers: Sequence[MaskableLayer], rank: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """All settings of PEFT's configuration except the seed."""
    config = {**kind.settings, **given}
    if rank is not None and kind.rank is not None:
        config["r"] = rank
    if kind.alpha is not None:
        name, scale = kind.alpha
        config[name] = scale * (rank or 1)
    if "num_vectors" in config:
        divisor = math.gcd(*(width for layer in layers for width in layer.shape[:2]))
        fitting = [n for n in range(1, min(divisor, LONGEST_VECTOR) + 1) if divisor % n == 0]
        config.setdefault("vector_length", fitting[-1])
    if kind.free:
        config["u"] = config["r"] ** 2
    if "n_frequency" in config:  # a layer with fewer weights trains all of them
        few = [layer for layer in layers if layer.numel < config["n_frequency"]]
        config["n_frequency_pattern"] = {_module(layer): layer.numel for layer in few}
    config["target_modules"] = "|".join(re.escape(_module(layer)) for layer in layers)
    return config


def _adapted(
    backbone: Backbone,
    kind: AdapterKind,
    layers: Sequence[MaskableLayer],
    config: Mapping[str, Any],
    seed: int,
) -> nn.Module:
    """A copy of the network with an adapter in each layer, drawn from the seed."""
    peft = import_extra("peft", "PEFT")
    settings = dict(config)
    if kind.seed:
        settings[kind.seed] = seed % 2**63
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made, network = getattr(peft, kind.config)(**settings), copy.deepcopy(backbone.module)
        _as_matrices(network, layers)
        adapted = peft.get_peft_model(network, made).get_base_model()
        for name, values in adapted.named_parameters():
            if kind.one_bit and "lora_B" in name:
                nn.init.normal_(values, std=FIRST_ONE_BIT)
        if kind.free:
            _free(adapted, layers)
        return adapted


def _as_matrices(network: nn.Module, layers: Sequence[MaskableLayer]) -> None:
    """Replaces convolutions, which few kinds take, by linear layers; only changes are computed."""
    for layer in layers:
        if len(layer.shape) > 2:
            linear = nn.Linear(layer.fan_in, layer.units, bias=False, device="meta")
            kernels = network.get_parameter(layer.name).detach()
            linear.weight = nn.Parameter(kernels.reshape(layer.units, -1))
            network.set_submodule(_module(layer), linear)


def _free(network: nn.Module, layers: Sequence[MaskableLayer]) -> None:
    """Makes every entry of R a separate number, and applies singular values only to the inputs."""
    for layer in layers:
        module: Any = network.get_submodule(_module(layer))
        left, right = module.tinylora_B["default"], module.tinylora_A["default"]
        count, rank, _ = module.tinylora_P["default"].shape
        entries = torch.eye(count, device=left.device)[:, : rank * rank]
        module.tinylora_P["default"] = entries.reshape(count, rank, rank)
        roots = left.norm(dim=0)
        module.tinylora_B["default"] = left / roots
        module.tinylora_A["default"] = right * roots[:, None]


def round_adapter(
    trained: Mapping[str, Tensor], precision: str, largest: int | None, config: Mapping[str, Any]
) -> int:
    """Rounds an adapter's parameters in place to the values that are kept; returns their bytes."""
    # Matrices have values around zero, and are rounded with a step for each of their r columns.
    # Vectors and RandLoRA's gamma are rounded around the middle of their range. Of VB-LoRA's logits
    # (…, num_vectors) only the topk are kept: their indices, log2(num_vectors) bits each, and their
    # differences from the largest, as a softmax depends only on differences.
    logits = [value for name, value in trained.items() if "vblora_logits" in name]
    around_zero, around_middle = [], []
    for name, value in trained.items():
        if value.ndim == 1 or "randlora_gamma" in name:
            around_middle.append(_columns(name, value))
        elif "vblora_logits" not in name:
            around_zero.append(_columns(name, value))
    chosen, below = [], []
    for value in logits:
        largest_logits, indices = value.topk(config["topk"], dim=-1)
        chosen.append(indices)
        below.append((largest_logits[..., :1] - largest_logits[..., 1:]).flatten())
    if logits:
        around_middle.append(torch.cat(below))
    columns = around_zero + around_middle
    layouts = [TensorLayout("", tuple(column.shape)) for column in around_zero]
    layouts += [TensorLayout("", tuple(column.shape), True) for column in around_middle]
    values, size = rounded_tensors(columns, precision, layouts, largest=largest)
    for column, value in zip(columns, values, strict=True):
        column.copy_(value)
    if not logits:
        return size
    parts = values[-1].split([len(part) for part in below])
    for value, indices, part in zip(logits, chosen, parts, strict=True):
        shares = torch.zeros(indices.shape, device=value.device)
        shares[..., 1:] = -part.reshape(*indices.shape[:-1], -1)
        value.fill_(UNUSED).scatter_(-1, indices, shares)
    count = sum(indices.numel() for indices in chosen)
    return size + math.ceil(count * math.log2(config["num_vectors"]) / 8)


def _columns(name: str, values: Tensor) -> Tensor:
    """A view (n, r) of a matrix, as LoRA's A is (r, fan-in); vectors are not changed."""
    flat = values if values.ndim == 1 else values.reshape(len(values), -1)
    return flat.t() if "lora_A" in name or "randlora_gamma" in name else flat


def _is_adaptable(backbone: Backbone, layer: MaskableLayer) -> bool:
    """False for grouped convolutions, packed attention projections and embeddings."""
    owner = backbone.module.get_submodule(layer.parameter.rpartition(".")[0])
    if layer.part == "transposed":  # GPT-2's Conv1D counts as a linear layer
        return type(owner).__module__ == "transformers.pytorch_utils"
    return not layer.part and isinstance(owner, MASKABLE) and getattr(owner, "groups", 1) == 1


def _module(layer: MaskableLayer) -> str:
    return layer.name.rpartition(".")[0]
