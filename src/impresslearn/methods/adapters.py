"""Low-rank adapters through PEFT: what parameter-efficient fine-tuning makes of a frozen network.

LoRA (Hu et al. 2022) adds B A to a weight, with B (units, r) and A (r, fan-in) trained. VeRA
(Kopiczko et al. 2024) adds diag(b) B diag(d) A, with random B and A that all layers and tasks
share and that a seed redraws, so that only the vectors b and d are trained and kept.
"""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from impresslearn.coefficients.quantisation import restore_tensors, store_tensors
from impresslearn.data import Label
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.methods.finetuning import FineTuning, TrainingSettings, share_settings
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MASKABLE, MaskableLayer
from impresslearn.optimisation.loop import Recipe, Trainable, Weights
from impresslearn.state.tasks import TaskInfo
from impresslearn.streams import import_torchvision
from impresslearn.validation import ReadOnlySettings, check_integer

Kind = Literal["lora", "vera"]
KINDS = get_args(Kind)
ADAPTER_RECIPES = {
    "lora": Recipe(lr=0.01, schedule="cosine", epochs=3, min_steps=300),
    "vera": Recipe(lr=0.05, schedule="cosine", epochs=3, min_steps=300),
}
"""Adam at the better of two rates, on a task of permuted MNIST; LoRA of rank 1 prefers 0.03."""
LORA_SCALE = 2.0
"""What LoRA multiplies its product by, whatever the rank: a common choice."""
VERA_START = 0.1
"""The first value of VeRA's vector d, as its paper has it."""
ADAPTER = "default"


def import_peft() -> ModuleType:
    """PEFT. Raises MissingDependencyError where it is not installed or cannot be imported."""
    if find_spec("torchvision") is not None:  # which PEFT imports through transformers
        import_torchvision()
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "peft"
        raise MissingDependencyError(
            "this needs PEFT: pip install 'impresslearn[peft]'"
            if missing
            else f"PEFT cannot be imported: {error}"
        ) from error


class Adapter(ReadOnlySettings):
    """Trains an adapter of PEFT for every task, on the maskable linear layers and convolutions.

    GPT-2's `Conv1D` is as good as a linear layer. Grouped convolutions, the packed projections of
    attention and embeddings, which PEFT does not adapt as they are, stay frozen.

    kind: "lora" or "vera", whose layers must all be linear; rank: r; precision: what the trained
    numbers are rounded to after training and kept in, as a learner's coefficients are, with a step
    for each of the r columns (under "coded" one a matrix, and norm statistics are coded too). The
    network that predicts is the rounded one. The other settings are those of `FineTuning`. Raises
    MissingDependencyError without PEFT, and InputError for settings that do not fit and networks
    without a layer to adapt inside a module.
    """

    backbone: Backbone
    seed: int
    progress: bool | str

    def __init__(
        self,
        backbone: Backbone,
        *,
        kind: Kind = "lora",
        rank: int = 4,
        precision: str = "float32",
        **settings: Unpack[TrainingSettings],
    ) -> None:
        if kind not in KINDS:
            raise InputError(f"kind must be {' or '.join(KINDS)}, got {kind!r}")
        self._layers = [each for each in backbone.layers if _is_adaptable(backbone, each)]
        if not self._layers:
            raise InputError(
                "adapters need a linear layer or an ungrouped convolution among the maskable layers"
            )
        for layer in self._layers:
            if not _module(layer):
                raise InputError(
                    "PEFT adapts layers inside a module; wrap the layer in nn.Sequential"
                )
            if kind == "vera" and len(layer.shape) > 2:
                raise InputError('PEFT has VeRA for linear layers only; use kind="lora"')
        self.kind = kind
        self.rank = check_integer("rank", rank, 1)
        self.precision = precision
        settings["recipe"] = settings.get("recipe") or ADAPTER_RECIPES[kind]
        self._tuned = FineTuning(backbone, **settings, trains=self._trains, precision=precision)
        share_settings(self, self._tuned)
        self._peft = import_peft()

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes are those of the trained numbers and what goes with them."""
        return self._tuned.tasks_

    def learn_task(self, name: str, data: Any) -> Adapter:
        """Trains an adapter for the task with cross-entropy."""
        self._tuned.progress = self.progress
        self._tuned.learn_task(name, data)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels."""
        return self._tuned.predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]."""
        return self._tuned.score(data, task)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the frozen network on an unlearned task: nothing is shared."""
        return self._tuned.zero_shot_score(data, classes)

    def _trains(self) -> Trainable:
        adapted, frozen = self._adapted(), self.backbone.weights
        modules: dict[MaskableLayer, Any] = {
            layer: adapted.get_submodule(_module(layer)) for layer in self._layers
        }
        trained: dict[str, Tensor] = {
            name: value for name, value in adapted.named_parameters() if value.requires_grad
        }

        def weights() -> tuple[Weights, float]:
            return {
                layer.name: frozen[layer.name]
                + layer.of(module.get_delta_weight(ADAPTER)).reshape(layer.shape)
                for layer, module in modules.items()
            }, 0.0

        def result() -> tuple[Weights, int]:
            size = self._round(trained)
            return weights()[0], size

        return Trainable(list(trained.values()), weights, result)

    def _adapted(self) -> nn.Module:
        """A copy of the network with an adapter in each maskable layer, from this seed."""
        targets = "|".join(re.escape(_module(layer)) for layer in self._layers)
        common = {"r": self.rank, "target_modules": targets}
        if self.kind == "lora":
            config = self._peft.LoraConfig(lora_alpha=LORA_SCALE * self.rank, **common)
        else:
            config = self._peft.VeraConfig(
                d_initial=VERA_START, projection_prng_key=self.seed, **common
            )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            wrapped = self._peft.get_peft_model(copy.deepcopy(self.backbone.module), config)
        return wrapped.get_base_model()

    def _round(self, trained: dict[str, Tensor]) -> int:
        """Rounds the parameters in place to what is kept of them; its bytes.

        Matrices lie around zero and are rounded column by column of r, vectors around their middle.
        """
        names = sorted(trained, key=lambda name: trained[name].ndim == 1)
        vectors = [trained[name].ndim == 1 for name in names]
        columns = [_columns(name, trained[name]) for name in names]
        stored, levels = store_tensors(columns, self.precision, vectors)
        values, _ = restore_tensors(stored, self.precision, levels)
        for column, value in zip(columns, values, strict=True):
            column.copy_(value)
        return sum(part.nbytes for part in stored) + len(levels)


def _is_adaptable(backbone: Backbone, layer: MaskableLayer) -> bool:
    owner = backbone.module.get_submodule(layer.parameter.rpartition(".")[0])
    if layer.part == "transposed":
        return type(owner).__module__ == "transformers.pytorch_utils"
    return not layer.part and isinstance(owner, MASKABLE) and getattr(owner, "groups", 1) == 1


def _module(layer: MaskableLayer) -> str:
    return layer.name.rpartition(".")[0]


def _columns(name: str, values: Tensor) -> Tensor:
    """A view (n, r) of a LoRA matrix, whose A comes as (r, fan-in); vectors as they are."""
    flat = values if values.ndim == 1 else values.reshape(len(values), -1)
    return flat.t() if "lora_A" in name else flat
