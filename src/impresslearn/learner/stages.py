"""A task in stages: a readout of the frozen network, then numbers in the network if they pay.

What pays is seen on examples held out from the task's own training data. The numbers in the network
are trained with a free head, which is thrown away: the readout that replaces it is fitted in closed
form to the features of the changed network, so all bytes of the head are spent at their best.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.coefficients.learning import Budget
from impresslearn.coefficients.parametrisation import Coefficients, store_coefficients, task_weights
from impresslearn.coefficients.readout import Projection, Readout, over_features
from impresslearn.data import to_batches
from impresslearn.errors import NotLearnedWarning, TrainingError, warn_caller
from impresslearn.learner.readouts import Readouts, TooLargeError
from impresslearn.learner.settings import LearnerSettings
from impresslearn.networks.inputs import TrainingData
from impresslearn.networks.prediction import BATCH, TaskView
from impresslearn.store import LearnedTask, Store
from impresslearn.training.batched import Problem
from impresslearn.training.loop import FitResult, with_head

# Every sixth example is held out to compare the stages; fewer examples say too little.
FOLDS, FEWEST = 6, 60
# The network is trained where a readout of ROOMY bytes leaves more bits unexplained than this. What
# only a smaller readout leaves, bytes would explain, and a changed network costs bytes.
ROOMY, UNEXPLAINED = 2000, 230
# The head starts from zeros and learns this share of a readout's mean weight in a step of rate 1.
HEAD_RATE = 3.0
SCALES = 2.0 ** np.arange(-3, 1.5, 0.5)  # of logits
UNCHANGED = Coefficients((), ())  # of a task that changes nothing in the network


@dataclass(frozen=True)
class Stages:
    """The stages of one task.

    - problem: of training numbers in the network, as `Trainer.problem`.
    - name, data, seed: of the task.
    - features, targets: (n, f) of the frozen network and (n,), of all examples.
    - number, projection: what readouts are projected by, as `Store.last_projection`.
    """

    store: Store
    settings: LearnerSettings
    problem: Callable[..., Problem]
    name: str
    data: TrainingData
    seed: int
    features: Tensor
    targets: Tensor
    number: int
    projection: Projection | None

    def readout(
        self,
        features: Tensor,
        body: Coefficients,
        kept: Tensor | None = None,
        settings: LearnerSettings | None = None,
    ) -> Any:
        """What a task learns with this body: a readout is fitted to the kept examples."""
        kept = torch.arange(len(features)) if kept is None else kept
        readouts, targets = Readouts(self.store, settings or self.settings), self.targets[kept]
        fit = readouts.fit(features[kept], targets, self.data[1], self.projection)
        return readouts.joined(self.name, fit, self.number, self.data, body)

    def _head(self, learned: Coefficients) -> list[Tensor]:
        """The weights (f, K) of a readout, and perhaps its bias (K,)."""
        readout = learned.parts[-1]
        is_projected = isinstance(readout, Readout) and readout.projection
        return over_features(learned.numbers[-1], self.projection if is_projected else None)

    def losses(self, features: Tensor, learned: Coefficients, held: Tensor) -> Tensor:
        """(n,) the cross-entropies (nats) of a task's readout on held-out examples.

        They are taken at the best temperature: what was trained on the kept examples is surer of
        itself than a readout, right or wrong, and both keep their labels at any temperature.
        """
        weight, *bias = self._head(learned)
        logits = features[held] @ weight + (bias[0] if bias else 0.0)
        targets = self.targets[held].to(logits.device)
        tried = [F.cross_entropy(s * logits, targets, reduction="none") for s in SCALES]
        return min(tried, key=lambda losses: float(losses.mean())).cpu()

    def trained(
        self, room: int | None, kept: Tensor, replaced: LearnedTask | None = None
    ) -> tuple[Coefficients, Tensor, FitResult]:
        """Numbers in the network that were trained on the kept examples, and its features."""
        store, backbone, (examples, classes) = self.store, self.store.backbone, self.data
        frozen = self.readout(self.features, UNCHANGED)
        budget = None
        if room is not None:
            size = store_coefficients(frozen, "coded", backbone, len(classes)).nbytes
            budget = Budget(room - min(size, room // 3), self.settings.bit_price)
        part = examples.subset(kept.numpy()), classes
        training, numbers = self.problem(self.name, part, self.seed, replaced, budget, head=False)
        weight = self._head(frozen)[0]
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
        features = torch.cat(parts)
        if not features.isfinite().all():
            raise TrainingError("the changed network's features are NaN or infinite")
        return body, features, result

    def chosen(
        self, room: int | None
    ) -> tuple[Coefficients, Tensor, FitResult | None, dict[str, Any]]:
        """The last stage that is not worse on held-out examples, and the evidence for the history.

        A stage is worse where its mean loss is higher by more than one standard error.
        """
        held, kept = _held_out(self.targets, self.seed)
        frozen = UNCHANGED, self.features, None
        store, tune = self.store, self.settings.tune
        changes = store.backbone.small_parameters(tune) or len(store.bank)
        if len(self.targets) < FEWEST or not len(held) or not changes:
            return *frozen, {"stage": "readout"}
        before = self.losses(self.features, self.readout(self.features, UNCHANGED, kept), held)
        losses = [_rounded(before.mean())]
        evidence: dict[str, Any] = {"stage": "readout", "held_out_loss": losses}
        if room is not None:
            least = before
            if (self.settings.max_bytes or ROOMY) < ROOMY:
                roomy = replace(self.settings, max_bytes=ROOMY)
                explained = self.readout(self.features, UNCHANGED, kept, roomy)
                least = self.losses(self.features, explained, held)
            if float(least.mean()) * len(self.targets) / math.log(2) < UNEXPLAINED:
                return *frozen, evidence
        try:
            body, features, result = self.trained(room, kept)
            after = self.losses(features, self.readout(features, body, kept), held)
        except TooLargeError:
            return *frozen, evidence
        except TrainingError as error:
            line = f"task {self.name!r} stays a readout of the network as it is: {error}"
            warn_caller(line, NotLearnedWarning)
            return *frozen, evidence
        losses.append(_rounded(after.mean()))
        worse = after - before
        # On a hundred examples a real gain of a few points may look like a small loss.
        is_worse = not worse.mean() <= worse.std() / math.sqrt(len(held))
        if is_worse or not any(tensor.any() for tensor in body.tensors()):
            return *frozen, evidence
        return body, features, result, evidence | {"stage": "network"}


def _held_out(targets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Places of examples that are held out, every sixth of each class, and of the others."""
    labels, held = targets.cpu().numpy(), []
    order = np.random.default_rng(seed).permutation(len(labels))
    for label in np.unique(labels):
        held += order[labels[order] == label][FOLDS - 1 :: FOLDS].tolist()
    kept = np.setdiff1d(order, held)
    return torch.tensor(sorted(held), dtype=torch.long), torch.from_numpy(kept)


def _rounded(loss: Tensor) -> float:
    return float(f"{float(loss):.4g}")
