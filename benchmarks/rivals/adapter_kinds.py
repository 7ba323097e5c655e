"""The kinds of adapters: PEFT's configuration of each, what its size means, and its recipe.

| kind | what a task trains and keeps | its size |
|---|---|---|
| lora | B (units, r) and A (r, fan-in), W + B A (Hu et al. 2022) | rank |
| vera | b and d, W + diag(b) B diag(d) A (Kopiczko et al. 2024) | rank |
| unilora | one vector, whose entries fill all B and A (Uni-LoRA, Li et al. 2025) | theta_d_length |
| randlora | diagonals between n random pairs of factors (Albert et al. 2025) | n = width / rank |
| vblora | vectors, and topk of them a piece of B and A (Li et al. 2024) | num_vectors, rank |
| fourierft | coefficients of the change's Fourier transform (Gao et al. 2024) | n_frequency |

Random factors, places and frequencies are redrawn from the seed and cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from impresslearn.coefficients.quantisation import rounded_tensors
from impresslearn.methods.finetuning import LENGTH
from impresslearn.training.loop import Recipe

Kind = Literal["lora", "vera", "unilora", "randlora", "vblora", "fourierft"]
LORA_SCALE = 2.0
"""What LoRA multiplies its product by, whatever the rank: a common choice."""
VERA_START = 0.1
"""The first value of VeRA's vector d, as its paper has it."""
RANDLORA_SCALE = 20
"""What RandLoRA multiplies its sum by, whatever the rank: PEFT's choice."""
LONGEST_VECTOR = 256
"""Of VB-LoRA's bank, as in its paper; where a layer's width is no multiple, their divisor."""
UNUSED = -1e9
"""A logit of a vector that is not among the topk."""


@dataclass(frozen=True)
class AdapterKind:
    """One kind of adapter.

    title: its name; config: PEFT's class; recipe: the default; rank: the default, None where there
    is no rank; settings: PEFT's further settings that may be chosen with the values that hold
    otherwise, from the rank and the greatest common divisor of all widths; seed: PEFT's name of the
    one that redraws the random parts; by_unit: whether its change is (units, fan_in) also where a
    parameter is (fan_in, units).
    """

    title: str
    config: str
    recipe: Recipe
    settings: Callable[[int, int], Mapping[str, Any]]
    rank: int | None = 4
    seed: str = ""
    linear_only: bool = True
    by_unit: bool = False


def _recipe(lr: float) -> Recipe:
    return Recipe(lr=lr, schedule="cosine", **LENGTH)


ADAPTER_KINDS: dict[str, AdapterKind] = {
    "lora": AdapterKind(
        "LoRA",
        "LoraConfig",
        _recipe(0.01),
        lambda rank, _: {"lora_alpha": LORA_SCALE * rank},
        linear_only=False,
    ),
    "vera": AdapterKind(
        "VeRA",
        "VeraConfig",
        _recipe(0.05),
        lambda rank, _: {"d_initial": VERA_START},
        seed="projection_prng_key",
    ),
    "unilora": AdapterKind(
        "Uni-LoRA",
        "UniLoraConfig",
        _recipe(0.03),
        lambda rank, _: {"theta_d_length": 256, "init_theta_d_bound": 0.02},
        seed="proj_seed",
    ),
    "randlora": AdapterKind(
        "RandLoRA",
        "RandLoraConfig",
        _recipe(0.003),
        lambda rank, _: {"randlora_alpha": RANDLORA_SCALE * rank, "sparse": False},
        rank=32,
        seed="projection_prng_key",
    ),
    "vblora": AdapterKind(
        "VB-LoRA",
        "VBLoRAConfig",
        _recipe(0.03),
        lambda rank, divisor: {
            "num_vectors": 256,
            "vector_length": _longest(divisor),
            "topk": 2,
            "init_vector_bank_bound": 0.02,
            "init_logits_std": 0.1,
        },
    ),
    "fourierft": AdapterKind(
        "FourierFT",
        "FourierFTConfig",
        _recipe(0.003),
        lambda rank, _: {"n_frequency": 256, "scaling": 150.0, "init_weights": True},
        rank=None,
        seed="random_loc_seed",
        by_unit=True,
    ),
}
ADAPTER_RECIPES = {name: kind.recipe for name, kind in ADAPTER_KINDS.items()}
"""Adam at the best rate tried on one task of permuted MNIST, Kaiming normal weights.

LoRA and VeRA at the better of two, and LoRA of rank 1 prefers 0.03. The others at the best of
0.003, 0.01, 0.03 and 0.1 on held-out training images, numbers coded, after three epochs. FourierFT
takes 0.003: it learns more at higher rates, but its numbers then spread too widely for 15 levels
(1,000 frequencies, 0.01, ten epochs: 93.0% in float32, 58.1% coded; at 0.003 89.5% coded). It
starts at no change, which is not PEFT's default: random coefficients cost it 17 points.
"""


def round_adapter(
    trained: Mapping[str, Tensor],
    precision: str,
    largest: int | None,
    config: Mapping[str, Any],
) -> int:
    """Rounds an adapter's parameters in place to what is kept of them; its bytes.

    trained: PEFT's names and parameters; precision, largest: as of `rounded_tensors`; config: the
    kind's further settings. Matrices lie around
    zero and are rounded column by column of r, vectors and RandLoRA's gamma around their middle.
    """
    choices = [_Choice(value, config["topk"]) for name, value in trained.items() if _picks(name)]
    names = [name for name in trained if not _picks(name)]
    names.sort(key=lambda name: _lies_off_zero(name, trained[name]))
    columns = [_columns(name, trained[name]) for name in names]
    with_offset = [_lies_off_zero(name, trained[name]) for name in names]
    below = [choice.below for choice in choices]
    if any(len(each) for each in below):
        columns.append(torch.cat(below))
        with_offset.append(True)
    values, size = rounded_tensors(columns, precision, with_offset, largest=largest)
    for column, value in zip(columns, values, strict=True):
        column.copy_(value)
    if choices:
        kept = values[-1] if len(values) > len(names) else values[-1].new_zeros(0)
        for choice, part in zip(choices, kept.split([len(each) for each in below]), strict=True):
            choice.keep(part)
        picked = sum(choice.indices.numel() for choice in choices)
        size += math.ceil(picked * math.log2(config["num_vectors"]) / 8)
    return size


class _Choice:
    """What VB-LoRA keeps of a parameter of logits (..., num_vectors): the topk and their weights.

    The weights are a softmax, so that of topk logits only how far all but the largest lie below it
    counts (`below`). Each index takes log2(num_vectors) bits.
    """

    def __init__(self, logits: Tensor, topk: int) -> None:
        self._logits = logits
        values, self.indices = logits.topk(topk, dim=-1)
        self.below = (values[..., :1] - values[..., 1:]).flatten()

    def keep(self, below: Tensor) -> None:
        """Sets the logits to what is kept, with these for `below`."""
        kept = torch.zeros(self.indices.shape, device=self._logits.device)
        kept[..., 1:] = -below.reshape(*self.indices.shape[:-1], -1) if len(below) else 0.0
        self._logits.fill_(UNUSED).scatter_(-1, self.indices, kept)


def _picks(name: str) -> bool:
    return "vblora_logits" in name


def _lies_off_zero(name: str, values: Tensor) -> bool:
    return values.ndim == 1 or "randlora_gamma" in name


def _columns(name: str, values: Tensor) -> Tensor:
    """A view (n, r) of a matrix; LoRA's A comes as (r, fan-in); vectors as they are."""
    flat = values if values.ndim == 1 else values.reshape(len(values), -1)
    return flat.t() if "lora_A" in name or "randlora_gamma" in name else flat


def _longest(divisor: int) -> int:
    """The longest vector that fits the widths, of those of VB-LoRA's bank."""
    return max(n for n in range(1, min(divisor, LONGEST_VECTOR) + 1) if divisor % n == 0)
