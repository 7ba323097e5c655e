"""The hybrid of the paper's appendix: ImpressLearn's body with SupSup's head.

All layers but the last combine the bank's masks. The last layer gets a binary mask per task, which
edge-popup trains at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import Unpack

from impresslearn.checks import ReadOnlySettings
from impresslearn.coefficients.masks import mixed_weights, uniform_coefficients
from impresslearn.data import Label
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.masks import PopupScores
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.codec import encode_mask
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.methods.finetuning import LENGTH, FineTuning, require_shared_head, share_settings
from impresslearn.methods.supsup import MaskSettings
from impresslearn.networks import Backbone
from impresslearn.store.tasks import TaskInfo, check_new_name, tensor_bytes
from impresslearn.training.loop import Recipe, Trainable, Weights
from impresslearn.training.progress import ProgressChoice

HYBRID_RECIPE = Recipe(optimizer="adam", lr=0.02, schedule="cosine", **LENGTH)


class Hybrid(ReadOnlySettings):
    """Learns coefficients for the hidden layers and a mask for the head, task by task.

    - backbone: the frozen network, with at least two maskable layers and one head for all tasks
    - bank: masks to combine; empty by default, for `learn_basis` to fill
    - recipe: of the training of coefficients and heads
    - settings: as in `SupSup`, without precision; sparsity and allocation also apply to heads

    Raises InputError for another backbone. Source: the paper's appendix "Hybrid ImpressLearn".
    """

    backbone: Backbone
    seed: int
    progress: ProgressChoice

    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank | None = None,
        *,
        recipe: Recipe = HYBRID_RECIPE,
        **settings: Unpack[MaskSettings],
    ) -> None:
        require_shared_head("Hybrid", backbone)
        if len(backbone.layers) < 2:
            raise InputError("a hybrid needs a body and a head: at least two maskable layers")
        self._learner = ImpressLearner(backbone, bank=bank, **settings)
        chosen, self.bank = self._learner.settings, self._learner.bank_
        self._tuned = FineTuning(
            backbone,
            recipe=recipe,
            seed=chosen.seed,
            preprocessing=chosen.preprocessing,
            progress=self._learner.progress,
            make_trainable=self._trainable,
            role="learned",
        )
        share_settings(self, self._tuned)
        for name in ("sparsity", "allocation", "basis_recipe", "score_rule"):
            setattr(self, name, getattr(chosen, name))
        self._head_ones = ones_per_layer(backbone.layers, chosen.sparsity, chosen.allocation)[-1]

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; basis tasks first."""
        return {**self._learner.tasks_, **self._tuned.tasks_}

    def learn_basis(self, name: str, data: Any) -> Hybrid:
        """Trains an impression on a task and adds it to the bank; the task keeps that mask."""
        check_new_name(name, self.tasks_)
        self._learner.progress = self.progress
        self._learner.learn_basis(name, data)
        return self

    def add_random_masks(self, count: int, *, seed: int | None = None) -> Hybrid:
        """Appends random masks to the bank."""
        self._learner.add_random_masks(count, seed=seed)
        return self

    def learn_task(self, name: str, data: Any) -> Hybrid:
        """Learns coefficients over the masks now in the bank, and a mask for the head.

        Raises InputError for an empty bank, a name that is taken, unusable data and too many
        classes.
        """
        check_new_name(name, self.tasks_)
        self._tuned.progress = self.progress
        self._tuned.learn_task(name, data)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        return self._holder(task).predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        return self._holder(task).score(data, task)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the equal mixture of all masks on an unlearned task."""
        return self._learner.zero_shot_score(data, classes)

    def _holder(self, task: str) -> ImpressLearner | FineTuning:
        return self._learner if task in self._learner.tasks_ else self._tuned

    def _trainable(self, examples: int) -> Trainable:
        backbone, head = self.backbone, self.backbone.layers[-1:]
        body = uniform_coefficients(backbone.layers, len(self.bank), backbone.device)
        alphas = [alpha.requires_grad_(True) for alpha in body.alpha[:-1]]
        ones, device = [self._head_ones], backbone.device
        scores = PopupScores.create(head, ones, self.seed, "score", device)

        def weights() -> tuple[Weights, float]:
            mixed = mixed_weights(self.bank, backbone.weights, body)
            return mixed | scores.weights(backbone.weights), 0.0

        def result() -> tuple[Weights, int]:
            """The weights, and the bytes: coefficients in float32 and the head's coded mask."""
            masks = scores.masks()
            rows = [masks[layer.name].reshape(layer.units, -1).cpu().numpy() for layer in head]
            return weights()[0], tensor_bytes(alphas) + len(encode_mask(rows))

        return Trainable([*alphas, *scores.tensors], weights, result)
