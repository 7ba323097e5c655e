"""Readouts of a learner's tasks, and tasks in stages, which begin with one.

A task in stages is a readout of the frozen network, then numbers in the network if they pay, which
is seen on examples held out from the task's own training data. The numbers are trained with a free
head, which is thrown away: the readout that replaces it is fitted in closed form to the features of
the changed network, so all bytes of the head are spent at their best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.coefficients.learning import Budget
from impresslearn.coefficients.parametrisation import Coefficients, store_coefficients, task_weights
from impresslearn.coefficients.quantisation import Grids
from impresslearn.coefficients.readout import (
    COMPONENTS,
    Projection,
    Readout,
    ReadoutFit,
    over_features,
)
from impresslearn.data import to_batches
from impresslearn.errors import InputError, NotLearnedWarning, TrainingError, warn_caller
from impresslearn.inference.feature_scores import profile_share
from impresslearn.inference.unknown import largest_profile_bytes
from impresslearn.learner.presets import LearnerSettings
from impresslearn.networks.inputs import TrainingData, some_inputs
from impresslearn.networks.prediction import BATCH, TaskView
from impresslearn.store import LearnedTask, Store
from impresslearn.store.tasks import label_map_bytes
from impresslearn.training.batched import Problem
from impresslearn.training.loop import FitResult, with_head

FEW_FEATURES = 64  # fewer are read as they are
# Every sixth example is held out to compare the stages; fewer examples say too little.
FOLDS, FEWEST = 6, 60
# The network is trained where a readout of ROOMY bytes leaves more bits unexplained than this. What
# only a smaller readout leaves, bytes would explain, and a changed network costs bytes.
ROOMY, UNEXPLAINED = 2000, 230
# The head starts from zeros and learns this share of a readout's mean weight in a step of rate 1.
HEAD_RATE = 3.0
SCALES = 2.0 ** np.arange(-3, 1.5, 0.5)  # of logits
UNCHANGED = Coefficients((), ())  # of a task that changes nothing in the network


Numbered = tuple[int, Projection | None]  # a projection of a store, and its number


class TooLargeError(InputError):
    """A task takes more than max_bytes."""


class UnreadableFeaturesError(InputError):
    """The last layer does not read one vector of features per input."""


@dataclass(frozen=True)
class NewTask:
    """A task to learn.

    - about: further metrics for its history.
    - replaced: the version that is learned further.
    - started: when its training began.
    """

    name: str
    data: TrainingData
    seed: int
    about: Mapping[str, Any]
    replaced: LearnedTask | None = None
    started: float = field(default_factory=time.perf_counter)


def room_of(store: Store, settings: LearnerSettings, task: NewTask) -> int | None:
    """What max_bytes leaves for a task's numbers; None without it."""
    examples, classes = task.data
    if settings.max_bytes is None:
        return None
    profile = largest_profile_bytes(some_inputs(examples, 1))
    if store.knows_features:
        profile = max(profile, profile_share(settings.max_bytes))
    room = settings.max_bytes - label_map_bytes(classes) - profile
    if room < 0:
        raise does_not_fit(task.name, settings.max_bytes)
    return room


def does_not_fit(name: str, max_bytes: int | None) -> TooLargeError:
    return TooLargeError(
        f"task {name!r} does not fit into max_bytes = {max_bytes}: what identifies and labels it "
        "takes most of them; make a learner with a larger max_bytes"
    )


@dataclass(frozen=True)
class Readouts:
    """Fits the readouts of a store's tasks by a learner's settings."""

    store: Store
    settings: LearnerSettings

    def learned(
        self,
        task: NewTask,
        features: Tensor,
        targets: Tensor,
        numbered: Numbered,
        body: Coefficients,
        residual: bool = True,
    ) -> Coefficients:
        """What a task learns: numbers in the network, and the best readout within max_bytes.

        - features, targets: that the readout is fitted to.
        - numbered: the projection that it reads, as of `Rows.last_projection`.
        - body: the task's changes of the network.
        """
        (number, projection), backbone = numbered, self.store.backbone
        head, classes = backbone.own_head, len(task.data[1])
        bias = head is not None and len(head.shapes) == 2
        fit = ReadoutFit(features, targets, classes, projection=projection, bias=bias)

        def joined(
            numbers: tuple[Tensor, ...], grids: Grids | None, used: int = number
        ) -> Coefficients:
            moved = tuple(values.to(backbone.device) for values in numbers)
            part = Readout(len(moved[0]), used, residual)
            if grids is not None:
                grids = (*(body.grids or ()), *grids)
            return Coefficients((*body.parts, part), (*body.numbers, moved), body.num_masks, grids)

        if self.settings.precision != "coded":
            return joined(fit.exact(), None)
        room, price = room_of(self.store, self.settings, task), self.settings.bit_price
        if room is None:
            return joined(*fit.rounded(price))
        # Bytes beside the weights' code: of the body, the bias, models, steps and whole words.
        surplus = store_coefficients(body, "coded", backbone, classes).nbytes if body.parts else 0
        while surplus <= room:
            bits = 8 * (room - surplus)
            suited = fit.within(bits)
            used = number if suited.is_projected else 0
            learned = joined(*suited.rounded(price, bits), used)
            size = store_coefficients(learned, "coded", backbone, classes).nbytes
            if size <= room:
                return learned
            surplus += size - room
        raise does_not_fit(task.name, self.settings.max_bytes)

    def first_projection(self, features: Tensor, num_masks: int, residual: bool) -> Numbered:
        """Learns the projection that all readouts share from the first task with enough examples.

        Components of one task's features serve other tasks almost as well as components of many.
        """
        dimensions = min(COMPONENTS, features.shape[1])
        few = dimensions < FEW_FEATURES or len(features) < dimensions
        if few or not self.store.adds_shared:
            return 0, None
        return self.keep_projection(features, dimensions, num_masks, residual)

    def keep_projection(
        self, features: Tensor, dimensions: int, num_masks: int, residual: bool
    ) -> Numbered:
        projection = Projection.of(features, dimensions, num_masks, residual)
        projection = replace(projection, matrix=projection.matrix.to(self.store.backbone.device))
        return self.store.commit_projection(projection), projection

    def networks(self, projection: Projection | None = None) -> tuple[int, bool]:
        """How many masks give features, and whether the network itself does: as projected, if so.

        Raises InputError for networks whose features a readout cannot use.
        """
        store, backbone = self.store, self.store.backbone
        if backbone.own_head is None:
            raise InputError('readouts need heads of tasks; make the network with head="own"')
        if backbone.has_task_statistics:
            raise InputError(
                "a readout uses features of networks with one set of norm statistics; make the "
                'network with norm="shared" or norm="batch", not "per_task"'
            )
        if backbone.shares_statistics and store.shared is None:
            raise InputError(
                "the first task gathers the norm statistics that all tasks share; learn a basis "
                "task before a readout"
            )
        if projection is not None:
            return projection.num_masks, projection.residual
        return len(store.bank), self.settings.start == "network" or not len(store.bank)

    def features(self, data: TrainingData, num_masks: int, residual: bool) -> tuple[Tensor, Tensor]:
        """Features (n, f) of all examples, and their class indices (n,).

        Raises InputError for a network whose last layer does not read one vector an input.
        """
        store, backbone = self.store, self.store.backbone
        view = store.feature_view(num_masks, residual)
        parts, targets = [], []
        for inputs, indices in to_batches(*data, backbone.device).batches(BATCH):
            parts.append(view.features(backbone, inputs).float())
            targets.append(indices)
        features = torch.cat(parts)
        width = backbone.own_head.fan_in if backbone.own_head else 0
        if features.shape[1] != (num_masks + residual) * width:
            raise UnreadableFeaturesError(
                f"the last layer of {backbone.name} reads {(num_masks + residual) * width} "
                f"features, but {features.shape[1]} enter it an input; a readout needs a linear one"
            )
        return features, torch.cat(targets)


@dataclass(frozen=True)
class Stages:
    """The stages of one task.

    - readouts: fits readouts of the store.
    - problem: of training numbers in the network, as `Trainer.problem`.
    - features, targets: (n, f) of the frozen network and (n,), of all examples.
    - numbered: what readouts are projected by, as `Rows.last_projection`.
    """

    readouts: Readouts
    problem: Callable[..., Problem]
    task: NewTask
    features: Tensor
    targets: Tensor
    numbered: Numbered

    def readout(
        self, features: Tensor, body: Coefficients, kept: Tensor | slice = slice(None)
    ) -> Coefficients:
        """What a task learns with this body: a readout is fitted to the kept examples."""
        features, targets = features[kept], self.targets[kept]
        return self.readouts.learned(self.task, features, targets, self.numbered, body)

    def _head(self, learned: Coefficients) -> list[Tensor]:
        """The weights (f, K) of a readout, and perhaps its bias (K,)."""
        readout = learned.parts[-1]
        is_projected = isinstance(readout, Readout) and readout.projection
        return over_features(learned.numbers[-1], self.numbered[1] if is_projected else None)

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

    def trained(self, room: int | None, kept: Tensor) -> tuple[Coefficients, Tensor, FitResult]:
        """Numbers in the network that were trained on the kept examples, and its features."""
        store, settings = self.readouts.store, self.readouts.settings
        backbone, (examples, classes) = store.backbone, self.task.data
        frozen = self.readout(self.features, UNCHANGED)
        budget = None
        if room is not None:
            size = store_coefficients(frozen, "coded", backbone, len(classes)).nbytes
            budget = Budget(room - min(size, room // 3), settings.bit_price)
        part = replace(self.task, data=(examples.subset(kept.numpy()), classes))
        training, numbers = self.problem(part, budget, head=False)
        weight = self._head(frozen)[0]
        rate = HEAD_RATE * float(weight.square().mean().sqrt() or 1.0)
        with torch.enable_grad():
            trained = with_head(numbers, backbone, len(classes), rate)
            result = training.fit(trained)
        body, _ = trained.result()
        changed = task_weights(store.bank, backbone, body)
        view = TaskView(changed, training.phase.statistics, len(classes))
        parts = []
        for inputs, _ in to_batches(examples, classes, backbone.device).batches(BATCH):
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
        held, kept = _held_out(self.targets, self.task.seed)
        frozen = UNCHANGED, self.features, None
        store, settings = self.readouts.store, self.readouts.settings
        changes = store.backbone.small_parameters(settings.tune) or len(store.bank)
        if len(self.targets) < FEWEST or not len(held) or not changes:
            return *frozen, {"stage": "readout"}
        before = self.losses(self.features, self.readout(self.features, UNCHANGED, kept), held)
        losses = [_rounded(before.mean())]
        evidence: dict[str, Any] = {"stage": "readout", "held_out_loss": losses}
        if room is not None:
            least = before
            if (settings.max_bytes or ROOMY) < ROOMY:
                roomy = replace(self.readouts, settings=replace(settings, max_bytes=ROOMY))
                explained = replace(self, readouts=roomy).readout(self.features, UNCHANGED, kept)
                least = self.losses(self.features, explained, held)
            if float(least.mean()) * len(self.targets) / math.log(2) < UNEXPLAINED:
                return *frozen, evidence
        try:
            body, features, result = self.trained(room, kept)
            after = self.losses(features, self.readout(features, body, kept), held)
        except TooLargeError:
            return *frozen, evidence
        except TrainingError as error:
            line = f"task {self.task.name!r} stays a readout of the network as it is: {error}"
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
