"""Adapters through PEFT: what parameter-efficient fine-tuning makes of a frozen network.

LoRA, VeRA, Uni-LoRA, RandLoRA, VB-LoRA and FourierFT: `adapter_kinds` says what each trains.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from benchmarks.rivals.adapter_kinds import ADAPTER_KINDS, Kind, round_adapter
from impresslearn.checks import (
    ReadOnlySettings,
    check_choice,
    check_flag,
    check_integer,
    check_number,
)
from impresslearn.coefficients.quantisation import Grid, check_largest, rounded_tensors
from impresslearn.coefficients.quantized_parameters import QuantizedParameters
from impresslearn.data import Label
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.files import reason_of
from impresslearn.methods.finetuning import FineTuning, TrainingSettings, share_settings
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.networks.layers import MASKABLE, MaskableLayer
from impresslearn.store.tasks import TaskInfo
from impresslearn.streams.torchvision import import_extra
from impresslearn.training.loop import Trainable, Weights
from impresslearn.training.progress import ProgressChoice

ADAPTER = "default"
LORA_FIRST_STEP = 1.0
"""Of factors that are learned as whole numbers, as a share of their deviation at the start."""
LORA_FIRST_STEP_OF_ZEROS = 0.2
LORA_LEVELS_PER_UNIT = 10.0
"""Whole numbers move so much faster than the learning rate says (which Adam allows)."""


class Adapter(ReadOnlySettings):
    """Trains an adapter of PEFT for every task, on the maskable linear layers and convolutions.

    GPT-2's `Conv1D` is as good as a linear layer. Grouped convolutions, the packed projections of
    attention and embeddings, which PEFT does not adapt as they are, stay frozen.

    kind: "lora" (Hu et al. 2022), or where all layers are linear "vera" (Kopiczko et al. 2024),
    "unilora" (Li et al. 2025), "randlora" (Albert et al. 2025), "vblora" (Li et al. 2024) or
    "fourierft" (Gao et al. 2024); rank: r, 4 by default (RandLoRA 32, of which more means fewer
    numbers; FourierFT has none); config: further settings by PEFT's names, such as theta_d_length,
    num_vectors or n_frequency. precision: what the trained numbers are rounded to after training
    and kept in, as a learner's coefficients are, with a step for each of the r columns (under
    "coded" one a matrix, and norm statistics are coded too); largest: the largest of the whole
    numbers that they are rounded to under "coded" (7). The network that predicts is the rounded
    one. What the seed redraws is not kept. bit_price: of LoRA under "coded" alone: its
    factors are then learned as whole numbers, whose code length is part of the loss at this price
    of a bit, as a learner's coefficients are. The other settings are those of `FineTuning`. Raises
    MissingDependencyError without PEFT or with one that lacks the kind, and InputError for settings
    that do not fit and networks without a layer to adapt inside a module.
    """

    backbone: Backbone
    seed: int
    progress: ProgressChoice

    def __init__(
        self,
        backbone: Backbone,
        *,
        kind: Kind = "lora",
        rank: int | None = None,
        config: Mapping[str, Any] | None = None,
        precision: str = "float32",
        largest: int | None = None,
        bit_price: float | None = None,
        **settings: Unpack[TrainingSettings],
    ) -> None:
        check_choice("kind", kind, ADAPTER_KINDS)
        self._kind = ADAPTER_KINDS[kind]
        self._layers = [
            each for each in check_backbone(backbone).layers if _is_adaptable(backbone, each)
        ]
        if not self._layers:
            raise InputError(
                "adapters need a linear layer or an ungrouped convolution among the maskable layers"
            )
        for layer in self._layers:
            if not _module(layer):
                raise InputError(
                    "PEFT adapts layers inside a module; wrap the layer in nn.Sequential"
                )
            if self._kind.linear_only and len(layer.shape) > 2:
                title = self._kind.title
                raise InputError(f'PEFT has {title} for linear layers only; use kind="lora"')
        self.kind = kind
        self.rank = self._checked_rank(rank)
        self.config = self._completed(config or {})
        self.precision = precision
        self.largest = check_largest(largest, precision)
        self.bit_price = None if bit_price is None else check_number("bit_price", bit_price, 0)
        if bit_price is not None and (kind, precision) != ("lora", "coded"):
            raise InputError(
                'bit_price is for kind="lora" and precision="coded" alone, '
                f"got kind={kind!r} and precision={precision!r}"
            )
        settings["recipe"] = settings.get("recipe") or self._kind.recipe
        self._tuned = FineTuning(
            backbone, **settings, make_trainable=self._trains, precision=precision
        )
        share_settings(self, self._tuned)
        self._peft = import_extra("peft", "PEFT")
        if not hasattr(self._peft, self._kind.config):
            raise MissingDependencyError(
                f"this PEFT has no {self._kind.title}; upgrade it: pip install -U peft"
            )

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes are those of the trained numbers and what goes with them."""
        return self._tuned.tasks_

    def learn_task(self, name: str, data: Any) -> Adapter:
        """Trains an adapter for the task with cross-entropy. Raises as `FineTuning.learn_task`."""
        self._tuned.progress = self.progress
        self._tuned.learn_task(name, data)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        return self._tuned.predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        return self._tuned.score(data, task)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the frozen network on an unlearned task: nothing is shared."""
        return self._tuned.zero_shot_score(data, classes)

    def _trains(self, examples: int) -> Trainable:
        adapted = _Adapted(self._adapted(), self._layers, self._kind.by_unit)
        frozen = self.backbone.weights
        trained: dict[str, Tensor] = {
            name: value for name, value in adapted.named_parameters() if value.requires_grad
        }

        if self.bit_price is not None:
            return self._priced(adapted, trained, self.bit_price / examples)

        def weights() -> tuple[Weights, float]:
            return {name: frozen[name] + change for name, change in adapted().items()}, 0.0

        def result() -> tuple[Weights, int]:
            size = round_adapter(trained, self.precision, self.largest, self.config)
            return weights()[0], size

        return Trainable(list(trained.values()), weights, result)

    def _priced(self, adapted: _Adapted, trained: Mapping[str, Tensor], price: float) -> Trainable:
        """LoRA's factors as whole numbers whose code length is part of the loss.

        price: nats that a bit costs, divided by the number of examples.
        """
        frozen, first = self.backbone.weights, list(trained.values())
        steps = [
            LORA_FIRST_STEP * float(each.detach().std()) or LORA_FIRST_STEP_OF_ZEROS
            for each in first
        ]
        shapes, speeds = [tuple(each.shape) for each in first], [LORA_LEVELS_PER_UNIT] * len(first)
        grids = [Grid(step, 0.0) for step in steps]
        numbers = QuantizedParameters(shapes, grids, speeds, first[0].device)
        numbers.set(0, first)

        def weights_of(values: Sequence[Tensor]) -> Weights:
            given = dict(zip(trained, values, strict=True))
            changes = torch.func.functional_call(adapted, given, ())
            return {name: frozen[name] + change for name, change in changes.items()}

        def weights() -> tuple[Weights, Tensor]:
            return weights_of(numbers.values()), numbers.bits() * (price * math.log(2))

        def result() -> tuple[Weights, int]:
            values, grids = numbers.result()
            kept, size = rounded_tensors(values, "coded", [True] * len(values), grids)
            return weights_of(kept), size

        return Trainable(numbers.parameters, weights, result)

    def _checked_rank(self, rank: int | None) -> int | None:
        if self._kind.rank is not None:
            return check_integer("rank", self._kind.rank if rank is None else rank, 1)
        if rank is not None:
            known = ", ".join(self._kind.settings(0, 1))
            raise InputError(
                f"{self._kind.title} has no rank, got {rank!r}; choose its size by config: {known}"
            )
        return None

    def _completed(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """All further settings of PEFT. Raises InputError for those that cannot be chosen."""
        divisor = math.gcd(*(width for layer in self._layers for width in layer.shape[:2]))
        settings = self._kind.settings(self.rank or 0, divisor)
        if not isinstance(given, Mapping) or not given.keys() <= settings.keys():
            raise InputError(
                f"config of {self._kind.title} is a mapping of {', '.join(settings)}, got {given!r}"
            )
        config = {
            name: _checked(name, given.get(name, settings[name]), settings[name])
            for name in settings
        }
        if config.get("topk", 1) > config.get("num_vectors", 1):
            raise InputError(
                f"topk must be at most num_vectors, got {config['topk']} of {config['num_vectors']}"
            )
        return config

    def _adapted(self) -> nn.Module:
        """A copy of the network with an adapter in each maskable layer, from this seed."""
        settings = dict(self.config)
        settings["target_modules"] = "|".join(re.escape(_module(each)) for each in self._layers)
        if self.rank is not None:
            settings["r"] = self.rank
        if most := settings.get("n_frequency"):  # layers that have fewer weights train them all
            fewer = (each for each in self._layers if each.numel < most)
            settings["n_frequency_pattern"] = {_module(each): each.numel for each in fewer}
        if self._kind.seed:
            settings[self._kind.seed] = self.seed % 2**63
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            try:
                made = getattr(self._peft, self._kind.config)(**settings)
                wrapped = self._peft.get_peft_model(copy.deepcopy(self.backbone.module), made)
            except (TypeError, ValueError) as error:
                raise InputError(f"PEFT's {self._kind.title}: {reason_of(error)}") from error
        return wrapped.get_base_model()


class _Adapted(nn.Module):
    """An adapted network as a module that gives the change of each layer's weights, by name."""

    def __init__(self, network: nn.Module, layers: Sequence[MaskableLayer], by_unit: bool) -> None:
        super().__init__()
        self.network, self._layers, self._by_unit = network, layers, by_unit

    def forward(self) -> Weights:
        changes = {}
        for layer in self._layers:
            module: Any = self.network.get_submodule(_module(layer))
            change = module.get_delta_weight(ADAPTER)
            change = change if self._by_unit else layer.of(change)
            changes[layer.name] = change.reshape(layer.shape)
        return changes


def _is_adaptable(backbone: Backbone, layer: MaskableLayer) -> bool:
    owner = backbone.module.get_submodule(layer.parameter.rpartition(".")[0])
    if layer.part == "transposed":
        return type(owner).__module__ == "transformers.pytorch_utils"
    return not layer.part and isinstance(owner, MASKABLE) and getattr(owner, "groups", 1) == 1


def _checked(name: str, value: Any, default: Any) -> Any:
    """A setting of the same kind as its default: a flag, a whole number from 1 on, or a number."""
    if isinstance(default, bool):
        return check_flag(name, value)
    return check_integer(name, value, 1) if isinstance(default, int) else check_number(name, value)


def _module(layer: MaskableLayer) -> str:
    return layer.name.rpartition(".")[0]
