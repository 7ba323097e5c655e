"""A task in stages: a readout of the frozen network, then numbers in the network if they pay.

What pays is seen on examples held out from the task's own training data. The numbers in the network
are trained with a free head, which is thrown away: the readout that replaces it is fitted in closed
form to the features of the changed network, so all bytes of the head are spent at their best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.coefficients.learning import Budget
from impresslearn.coefficients.parametrisation import Coefficients, store_coefficients, task_weights
from impresslearn.coefficients.readout import Projection, over_features, without_readout
from impresslearn.data import to_batches
from impresslearn.inference.feature_scores import profile_share
from impresslearn.learner.readouts import UnreadableFeaturesError, room_of
from impresslearn.networks.inputs import TrainingData
from impresslearn.networks.prediction import BATCH, TaskView, TrainingPhase
from impresslearn.store import LearnedTask
from impresslearn.store.training_run import TrainingRun
from impresslearn.training.loop import FitResult, with_head

if TYPE_CHECKING:
    from impresslearn.learner.trainer import Trainer

# Every sixth example is held out to compare the stages; fewer examples say too little.
FOLDS, FEWEST = 6, 60
# The network is trained where what a readout leaves unexplained, in bits, is worth more than this
# share of the bits that the task may take.
WORTH = 0.015
# The head starts from zeros and learns this share of a readout's mean weight in a step of rate 1.
HEAD_RATE = 3.0
SCALES = 2.0 ** np.arange(-3, 1.5, 0.5)  # of logits
BODY = Coefficients((), ())  # of a task that changes nothing in the network


@dataclass(frozen=True)
class Stages:
    """The stages of one task.

    - features, targets: (n, f) of the frozen network and (n,), of all examples.
    - number, projection: what readouts are projected by, as `Store.last_projection`.
    """

    trainer: Trainer
    name: str
    data: TrainingData
    seed: int
    features: Tensor
    targets: Tensor
    number: int
    projection: Projection | None

    def readout(self, features: Tensor, body: Coefficients, kept: Tensor | None = None) -> Any:
        """What a task learns with this body: a readout is fitted to the kept examples."""
        kept = torch.arange(len(features)) if kept is None else kept
        readouts, targets = self.trainer.readouts, self.targets[kept]
        fit = readouts.fit(features[kept], targets, self.data[1], self.projection)
        return readouts.joined(self.name, fit, self.number, self.data, body)

    def loss(self, features: Tensor, learned: Coefficients, held: Tensor) -> float:
        """The mean cross-entropy (nats) of a task's readout on held-out examples.

        It is that at the best temperature: what was trained on the kept examples is surer of itself
        than a readout, right or wrong, and both keep their labels at any temperature.
        """
        weight, *bias = over_features(learned.numbers[-1], self.projection)
        logits = features[held] @ weight + (bias[0] if bias else 0.0)
        targets = self.targets[held].to(logits.device)
        return min(float(F.cross_entropy(scale * logits, targets)) for scale in SCALES)

    def trained(
        self, room: int | None, kept: Tensor, replaced: LearnedTask | None = None
    ) -> tuple[Coefficients, Tensor, FitResult]:
        """Numbers in the network that were trained on the kept examples, and its features."""
        trainer, (examples, classes) = self.trainer, self.data
        store, backbone, price = trainer.store, trainer.store.backbone, trainer.settings.bit_price
        frozen = self.readout(self.features, BODY)
        budget = None
        if room is not None:
            size = store_coefficients(frozen, "coded", backbone, len(classes)).nbytes
            budget = Budget(room - min(size, room // 2), price)
        part = examples.subset(kept.numpy()), classes
        training, numbers = trainer.problem(
            self.name, part, self.seed, replaced, budget, head=False
        )
        weight = over_features(frozen.numbers[-1], self.projection)[0]
        rate = HEAD_RATE * float(weight.square().mean().sqrt() or 1.0)
        with torch.enable_grad():
            trained = with_head(numbers, backbone, len(classes), rate)
            result = training.fit(trained)
        body, _ = trained.result()
        changed = task_weights(store.bank, backbone, body)
        view = TaskView(changed, training.phase.statistics, len(classes))
        parts = []
        for inputs, _ in to_batches(*self.data, backbone.device).batches(BATCH):
            parts.append(view.features(backbone, inputs).float())
        return body, torch.cat(parts), result

    def chosen(
        self, room: int | None
    ) -> tuple[Coefficients, Tensor, FitResult | None, dict[str, Any]]:
        """The stage that predicts held-out examples best, and the evidence for the history."""
        held, kept = _held_out(self.targets, self.seed)
        frozen = BODY, self.features, None
        settings, store = self.trainer.settings, self.trainer.store
        changes = store.backbone.small_parameters(settings.tune) or len(store.bank)
        if len(self.targets) < FEWEST or not len(held) or not changes:
            return *frozen, {"stage": "readout"}
        before = self.loss(self.features, self.readout(self.features, BODY, kept), held)
        evidence: dict[str, Any] = {"stage": "readout", "held_out_loss": [_rounded(before)]}
        left = before * len(self.targets) / math.log(2)  # bits
        if room is not None and left < WORTH * 8 * room:
            return *frozen, evidence
        body, features, result = self.trained(room, kept)
        after = self.loss(features, self.readout(features, body, kept), held)
        evidence["held_out_loss"].append(_rounded(after))
        if not after < before:
            return *frozen, evidence
        return body, features, result, evidence | {"stage": "network"}


@torch.no_grad()
def learn_staged(
    trainer: Trainer,
    name: str,
    data: TrainingData,
    seed: int,
    about: Mapping[str, Any],
    replaced: LearnedTask | None = None,
) -> bool:
    """Learns and commits a task in stages; an update keeps the stage of the task before.

    Returns False, and learns nothing, where a readout cannot read the network's features.
    """
    store, settings, started = trainer.store, trainer.settings, time.perf_counter()
    room = room_of(store, settings, name, data)
    try:
        frozen, targets = trainer.readouts.features(data, 0, True)
    except UnreadableFeaturesError:
        return False
    number, projection = store.last_projection()
    if projection is None:
        number, projection = trainer.readouts.first_projection(frozen, 0, True)
    elif projection.num_masks or not projection.residual:
        number, projection = 0, None  # of the network under masks
    stages = Stages(trainer, name, data, seed, frozen, targets.cpu(), number, projection)
    if replaced is None:
        body, features, result, evidence = stages.chosen(room)
    elif without_readout(store.coefficients(replaced)) is None:
        body, features, result, evidence = BODY, frozen, None, {"stage": "readout"}
    else:
        everything = torch.arange(len(targets))
        body, features, result = stages.trained(room, everything, replaced)
        evidence = {"stage": "network"}
    learned = stages.readout(features, body)
    phase = TrainingPhase.begin(store.backbone, store.shared)
    metrics = trainer.metrics(about, started, len(data[0]), result) | evidence
    share = profile_share(settings.max_bytes)
    run = TrainingRun(*data, phase, metrics, frozen, share)
    history = settings.task_history(seed)
    store.commit_learned(name, learned, "coded", history, run, replaced=replaced)
    if not any(tensor.any() for tensor in learned.numbers[-1]):
        trainer.warn_if_at_chance(name, data, None)
    return True


def _held_out(targets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Places of examples that are held out, every sixth of each class, and of the others."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(targets))
    held = []
    for label in targets.unique():
        held += order[(targets.numpy() == int(label))[order]][FOLDS - 1 :: FOLDS].tolist()
    kept = np.setdiff1d(order, held)
    return torch.tensor(sorted(held), dtype=torch.long), torch.from_numpy(kept)


def _rounded(loss: float) -> float:
    return float(f"{loss:.4g}")
