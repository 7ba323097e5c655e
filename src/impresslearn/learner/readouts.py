"""Readouts of a learner's tasks, and tasks in two stages: a readout, then changes to the network.

The first stage fits a readout to the frozen network. The second stage trains changes to the network
(norms, biases, coefficients of masks) together with a temporary head. Then a readout of the changed
network's features replaces the head, because it makes better use of the same bytes. The second
stage is dropped if it is clearly worse on held-out examples. An update of a task keeps its stage.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.coefficients.learning import Budget
from impresslearn.coefficients.parametrisation import Coefficients, round_coefficients, task_weights
from impresslearn.coefficients.quantisation import Grids
from impresslearn.coefficients.readout import (
    COMPONENTS,
    Projection,
    Readout,
    ReadoutFit,
    over_features,
    without_head,
)
from impresslearn.data import (
    Examples,
    Features,
    StreamedExamples,
    classes_of,
    encode_labels,
    to_batches,
)
from impresslearn.data.preprocessing import Prepared
from impresslearn.errors import InputError, NotLearnedWarning, TrainingError, warn_caller
from impresslearn.inference.feature_scores import profile_share
from impresslearn.inference.unknown import largest_profile_bytes
from impresslearn.learner.presets import LearnerSettings
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import TrainingData, are_pixels, some_inputs
from impresslearn.networks.prediction import BATCH, TaskView
from impresslearn.store.store import Store
from impresslearn.store.tasks import StoredTask, label_map_bytes
from impresslearn.training.batched import Problem
from impresslearn.training.loop import FitResult, with_head

FEWEST_PROJECTED = 64  # fewer features are read without a projection
# Every sixth example is held out to compare the stages. Under 60 examples there is one stage.
HELD_OUT_EVERY, FEWEST_STAGED = 6, 60
# With max_bytes there is one stage if a readout in max_bytes, or in AMPLE_BYTES if that is more,
# has a total loss below SMALL_LOSS bits: a larger readout then gains more than changes do.
AMPLE_BYTES, SMALL_LOSS = 2000, 230
# The temporary head learns at this × the changes' rate × the RMS of the readout's weights.
HEAD_RATE = 3.0
SCALES = 2.0 ** np.arange(-3, 1.5, 0.5)  # inverse temperatures of the logits

# Given features may differ from computed ones by this fraction of the largest feature.
LARGEST_DIFFERENCE = 0.02

Data = Examples | StreamedExamples
MakesProblem = Callable[..., Problem]


class TooLargeError(InputError):
    """A task takes more than max_bytes."""


class UnreadableFeaturesError(InputError):
    """The last layer does not read one vector of features per input."""


class Stage(NamedTuple):
    """A network whose features a readout reads.

    - changes: the changes to the frozen network; without parts in the first stage.
    - features: the network's features (n, f) of all examples.
    - result: how the training of the changes ended.
    """

    changes: Coefficients
    features: Tensor
    result: FitResult | None


@dataclass(frozen=True)
class NewTask:
    """A task to learn.

    - extra_metrics: further entries of the task's history, such as the caller's note.
    - replaced: for an update, the version that is trained further.
    - started: when the training began, by `time.perf_counter`.
    - room: the bytes that the task's numbers may take, see `room_of`.
    - price: the price of a bit at first; the training's `Budget` raises it if needed.
    """

    name: str
    data: TrainingData
    seed: int
    extra_metrics: Mapping[str, Any]
    replaced: StoredTask | None = None
    started: float = 0.0
    room: int | None = None
    price: float = 0.0


def room_of(store: Store, max_bytes: int | None, task: NewTask) -> int | None:
    """The bytes left for numbers after labels and profile; None without max_bytes."""
    if max_bytes is None:
        return None
    examples, classes = task.data
    profile = largest_profile_bytes(some_inputs(examples, 1))
    if store.profiles_features:
        profile = max(profile, profile_share(max_bytes))
    room = max_bytes - label_map_bytes(classes) - profile
    if room < 0:
        why = f"its labels and input statistics take up to {max_bytes - room} bytes"
        raise does_not_fit(task, max_bytes, why)
    return room


def does_not_fit(task: NewTask, max_bytes: int | None, why: str) -> TooLargeError:
    """The error for a task that needs more than max_bytes."""
    line = f"task {task.name!r} does not fit into max_bytes = {max_bytes}: {why}"
    return TooLargeError(f"{line}; make a learner with a larger max_bytes")


def check_features(backbone: Backbone, alone: bool = False) -> None:
    """Raises InputError for a network without features that all tasks share.

    alone: whether the features of an input must not depend on the rest of its batch.
    """
    fixes = []
    if backbone.own_head is None:
        fixes.append('head="own" instead of head="shared"')
    if backbone.has_task_statistics:
        fixes.append('norm="shared" instead of norm="per_task"')
    if fixes:
        line = f"the tasks of {backbone.name} share no features"
        raise InputError(f"{line}; make the network with {' and '.join(fixes)}")
    if alone and backbone.normalises_by_batch:
        line = f"the batch norms of {backbone.name} make features depend on their batch"
        raise InputError(f"{line}, so features cannot be kept; give the inputs themselves")


def networks_of(
    store: Store, settings: LearnerSettings, projection: Projection | None = None
) -> tuple[int, bool]:
    """How many masks give features to readouts, and whether the unmasked network gives some, too.

    A projection fixes both. Raises InputError for networks whose features a readout cannot use.
    """
    check_features(store.backbone)
    if store.backbone.shares_statistics and store.shared is None:
        name = store.backbone.name
        line = f"the batch norms of {name} have gathered no statistics, and a readout gathers none"
        ways = 'give a trained network, make it with norm="batch", or call learn_basis first'
        raise InputError(f"{line}; {ways}")
    if projection is not None:
        return projection.num_masks, projection.residual
    return len(store.bank), (settings.start == "network" or not len(store.bank))


def features_of(store: Store, examples: Data, num_masks: int, residual: bool) -> Tensor:
    """Features (n, f), side by side: of the unmasked network if residual, then under each mask.

    Raises UnreadableFeaturesError if the network's last layer does not read one vector per input,
    or its outputs are changed before they are returned.
    """
    backbone = store.backbone
    if not backbone.plain_head:
        line = f"{backbone.name} changes the outputs of its last layer: readouts cannot replace it"
        raise UnreadableFeaturesError(f"{line}; return them as they are, or learn no readouts")
    features = _features_in(store.feature_view(num_masks, residual), store, examples)
    width = backbone.own_head.fan_in if backbone.own_head else 0
    if features.shape[1] != (num_masks + residual) * width:
        raise UnreadableFeaturesError(
            f"the last layer of {backbone.name} gets {features.shape[1]} values per input instead "
            f"of {(num_masks + residual) * width}; a readout needs a linear last layer"
        )
    return features


def _features_in(view: TaskView, store: Store, examples: Data) -> Tensor:
    source = to_batches(examples, classes_of(examples.labels), store.backbone.device)
    batches = source.batches(BATCH)
    return torch.cat([view.features(store.backbone, inputs).float() for inputs, _ in batches])


def raw_form(store: Store, settings: LearnerSettings, data: Any, examples: Any) -> dict[str, Any]:
    """The form of raw inputs, for a task's history. The first task sets it for all later tasks.

    The keys are "pixels" (whether inputs are pixels), "columns" (names of a table's columns) and
    "shape" (of inputs that the network flattens). Values that are not known are left out.
    With a preprocessing, so is "pixels"; for prepared inputs, so are "pixels" and "shape".
    """
    known, preprocessing, backbone = store.rows.form(), settings.preprocessing, store.backbone
    if known is not None:
        return known
    if isinstance(getattr(examples, "inputs", None), Features):
        return dict(examples.inputs.form)
    form: dict[str, Any] = {}
    is_raw = not isinstance(data, Prepared)
    columns = getattr(preprocessing, "columns", None)
    columns = columns or (getattr(examples, "columns", ()) if is_raw else ())
    if columns and len(set(columns)) == len(columns):
        form["columns"] = list(columns)
    if is_raw and backbone.flattens and (preprocessing is None or preprocessing.shape is None):
        # Keep the shape: a network that flattens would take channels first and last alike.
        shape = tuple(getattr(some_inputs(examples, 1), "shape", ()))[1:]
        if len(shape) > 1:
            form["shape"] = list(shape)
    if is_raw and preprocessing is None:
        pixels = are_pixels(backbone, examples)
        if pixels is not None:
            form["pixels"] = pixels
    return form


def check_values(values: Tensor, computed: Tensor, count: int, places: np.ndarray) -> None:
    """Raises InputError unless `values` is (count, f), with rows near `computed` at `places`."""
    shape = count, computed.shape[1]
    if values.shape == shape:
        apart = (values[torch.from_numpy(places)] - computed).abs().max()
        if apart <= LARGEST_DIFFERENCE * computed.abs().max():
            return
    raise InputError(
        f"values {tuple(values.shape)} are not the features {shape} of these inputs: they are "
        "of another network, or in another order; leave out values to compute them"
    )


class TaskReadout:
    """Learns the readout of one task and, for a task in stages, the changes of the network.

    - problem: for a task in stages, `Trainer.problem_of`, which sets up the training of changes.
      None for a task that is only a readout, which may also read features under masks.

    Raises UnreadableFeaturesError as `features_of` does.
    """

    def __init__(
        self, store: Store, settings: LearnerSettings, task: NewTask, problem: MakesProblem | None
    ) -> None:
        self._store, self._settings, self._task, self._problem = store, settings, task, problem
        staged = problem is not None
        examples, self._classes = task.data
        number, projection = store.rows.last_projection()
        num_masks, residual = (0, True) if staged else networks_of(store, settings, projection)
        self.features = features_of(store, examples, num_masks, residual)
        self._targets = encode_labels(examples.labels, self._classes)
        networks = num_masks, residual
        if projection is not None and (projection.num_masks, projection.residual) != networks:
            number, projection = 0, None  # the projection is for features under other masks
        elif projection is None and settings.precision == "coded":
            # The components of one task suit other tasks almost as well as components of many.
            dimensions = min(COMPONENTS, self.features.shape[1])
            enough = FEWEST_PROJECTED <= dimensions <= len(self.features)
            # A projection slows fits fourfold: the network `linear` gets one only for wide inputs.
            wide = store.profiles_features and dimensions > FEWEST_PROJECTED
            wanted = staged or store.backbone.pretrained or wide
            if enough and store.adds_shared and wanted:
                number, projection = store.commit_projection(self.features, dimensions, *networks)
        self._number, self._projection, self._residual = number, projection, residual
        self._frozen = Stage(Coefficients((), (), num_masks), self.features, None)

    def learned(self) -> tuple[Coefficients, FitResult | None, dict[str, Any]]:
        """The task's numbers, how its training ended, and evidence for its history."""
        stage, evidence = self._chosen()
        learned = self._with_readout(stage)
        weights, *_ = learned.numbers[-1]  # the readout comes last
        if self._task.replaced is None and stage.changes.parts and not weights.any():
            # The changes leave no room for a readout fitted to all examples: drop the changes.
            return self._with_readout(self._frozen), None, evidence | {"stage": "readout"}
        return learned, stage.result, evidence

    def _with_readout(
        self, stage: Stage, kept: Tensor | slice = slice(None), room: int | None = None
    ) -> Coefficients:
        """A stage's changes and the readout fitted to `kept` examples, together in `room` bytes."""
        room = self._task.room if room is None else room
        head, price = self._store.backbone.own_head, self._settings.bit_price
        has_bias = head is not None and len(head.shapes) == 2
        data = stage.features[kept], self._targets[kept], len(self._classes)
        # The fit counts only the bits of the weights. The size of the rest (changes, bias, models
        # of the coder) is known only when everything is coded. If the total exceeds the room, more
        # bytes are reserved for the rest and the fit is repeated.
        reserved = self._size(stage.changes) if stage.changes.parts and room is not None else 0
        bits = math.inf if room is None else 8 * (room - reserved)
        fit = ReadoutFit(*data, projection=self._projection, has_bias=has_bias, max_bits=bits)
        used = self._number if fit.is_projected else 0
        if self._settings.precision != "coded":
            return self._joined(stage.changes, fit.exact(), None, used)
        if room is None:
            return self._joined(stage.changes, *fit.rounded(price), used)
        while reserved <= room:
            numbers, grids = fit.rounded(price, 8 * (room - reserved))
            learned = self._joined(stage.changes, numbers, grids, used)
            size = self._size(learned)
            if size <= room:
                return learned
            reserved += size - room
        why = f"labels and input statistics leave {room} bytes for its numbers"
        raise does_not_fit(self._task, self._settings.max_bytes, why)

    def _joined(
        self, changes: Coefficients, numbers: Sequence[Tensor], grids: Grids | None, projection: int
    ) -> Coefficients:
        """Changes with a readout as their last part; projection: its number in the store, or 0."""
        moved = tuple(values.to(self._store.backbone.device) for values in numbers)
        part = Readout(len(moved[0]), projection, self._residual)
        if grids is not None:
            grids = (*(changes.grids or ()), *grids)
        parts, all_numbers = (*changes.parts, part), (*changes.numbers, moved)
        return Coefficients(parts, all_numbers, changes.num_masks, grids)

    def _size(self, learned: Coefficients) -> int:
        backbone, classes = self._store.backbone, len(self._classes)
        return len(round_coefficients(learned, "coded", backbone, classes).content)

    def _head(self, learned: Coefficients) -> list[Tensor]:
        """The readout as weights (f, K) over unprojected features, and perhaps its bias (K,)."""
        readout = learned.parts[-1]
        is_projected = isinstance(readout, Readout) and readout.projection
        return over_features(learned.numbers[-1], self._projection if is_projected else None)

    def _losses(self, stage: Stage, kept: Tensor, held: Tensor, room: int | None = None) -> Tensor:
        """(n,) cross-entropies (nats) on held-out examples, of a readout fitted to kept examples.

        The logits are scaled by the best temperature, which changes no predicted label. Otherwise
        the second stage, which is trained on the kept examples, could lose by overconfidence alone.
        """
        weight, *bias = self._head(self._with_readout(stage, kept, room))
        logits = stage.features[held] @ weight + (bias[0] if bias else 0.0)
        targets = self._targets[held].to(logits.device)
        tried = [F.cross_entropy(s * logits, targets, reduction="none") for s in SCALES]
        return min(tried, key=lambda losses: float(losses.mean())).cpu()

    def _trained(self, kept: Tensor) -> Stage:
        """The second stage: changes trained on the kept examples, and the resulting features."""
        store, room, (examples, classes) = self._store, self._task.room, self._task.data
        readout = self._with_readout(self._frozen)
        budget = None
        if room is not None:
            # Reserve the size of the readout that will replace the head, but at most a third.
            budget = Budget(room - min(self._size(readout), room // 3), self._settings.bit_price)
        assert self._problem is not None
        task = replace(self._task, data=(examples.subset(kept.numpy()), classes))
        training, numbers = self._problem(task, budget, head=False)
        weight = self._head(readout)[0]
        rate = HEAD_RATE * float(weight.square().mean().sqrt() or 1.0)  # 1 for a readout of zeros
        with torch.enable_grad():
            trainable = with_head(numbers, store.backbone, len(classes), rate)
            result = training.fit(trainable)
        changes, _ = trainable.result()
        weights = task_weights(store.bank, store.backbone, changes)
        view = TaskView(weights, training.phase.statistics, len(classes))
        features = _features_in(view, store, examples)
        if not features.isfinite().all():
            raise TrainingError("the changed network's features are NaN or infinite")
        return Stage(changes, features, result)

    def _chosen(self) -> tuple[Stage, dict[str, Any]]:
        """The stage to keep, and evidence for the history.

        The second stage is kept unless its mean loss on held-out examples is higher by more than
        one standard error. An update keeps the stage of the previous version.
        """
        task, targets, frozen = self._task, self._targets, self._frozen
        store, settings = self._store, self._settings
        if self._problem is None:
            return frozen, {}
        evidence: dict[str, Any] = {"stage": "readout"}
        if task.replaced is not None:
            if without_head(store.coefficients(task.replaced)) is None:
                return frozen, evidence
            return self._trained(torch.arange(len(targets))), {"stage": "network"}
        held, kept = _held_out(targets, task.seed)
        changeable = store.backbone.small_parameters(settings.tune) or len(store.bank)
        if len(targets) < FEWEST_STAGED or not len(held) or not changeable:
            return frozen, evidence
        before = self._losses(frozen, kept, held)
        recorded = evidence["held_out_loss"] = [float(f"{before.mean():.4g}")]
        if settings.max_bytes is not None:
            with_ample = before
            if settings.max_bytes < AMPLE_BYTES:
                room = room_of(store, AMPLE_BYTES, task)
                with_ample = self._losses(frozen, kept, held, room)
            if float(with_ample.mean()) * len(targets) / math.log(2) < SMALL_LOSS:
                return frozen, evidence
        try:
            second = self._trained(kept)
            after = self._losses(second, kept, held)
        except TooLargeError:
            return frozen, evidence
        except TrainingError as error:
            line = f"task {task.name!r} stays a readout of the network as it is: {error}"
            warn_caller(line, NotLearnedWarning)
            return frozen, evidence
        recorded.append(float(f"{after.mean():.4g}"))
        rise = after - before
        # A rise within the error is accepted: a hundred examples can hide a gain of a few points.
        is_good = rise.mean() <= rise.std() / math.sqrt(len(held))  # False for NaN
        if is_good and any(tensor.any() for tensor in second.changes.tensors()):
            return second, evidence | {"stage": "network"}
        return frozen, evidence


def _held_out(targets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of the held-out examples (every sixth of each class), and of the kept ones."""
    labels, held = targets.cpu().numpy(), []
    order = np.random.default_rng(seed % 2**64).permutation(len(labels))
    for label in np.unique(labels):
        held += order[labels[order] == label][HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY].tolist()
    kept = np.setdiff1d(order, held)
    return torch.tensor(sorted(held), dtype=torch.long), torch.from_numpy(kept)
