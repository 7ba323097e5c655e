"""The logits of many tasks on the same inputs, computed together as far as they share something.

Tasks of a multilayer perceptron are run in chunks (`perceptron`): mixtures by what they share, all
others by their own weights. Tasks that bring nothing but a head read the same features, which are
computed once. The rest are run one after the other. Tasks are read when their turn comes, so that
memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from impresslearn.coefficients.mixing import Coefficients
from impresslearn.data import Inputs
from impresslearn.errors import InputError
from impresslearn.inference.known_task import KnownTask
from impresslearn.inference.perceptron import Perceptron
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView

CHUNK_BYTES = 32 * 2**20
"""Of the tasks that wait to be run together, and of running them."""
MOST_STACKED = 512


class Outputs(NamedTuple):
    """What some tasks answer: their positions, the tasks, and logits (C, n, K)."""

    positions: list[int]
    tasks: list[KnownTask]
    logits: Tensor


def outputs_of_tasks(
    backbone: Backbone, bank: MaskBank, tasks: Collection[KnownTask], inputs: Tensor | Inputs
) -> Iterator[Outputs]:
    """The logits of every task, a chunk of tasks of as many classes at a time, in any order.

    Equal up to rounding to those of each task's `view`. Raises InputError for logits that are no
    finite numbers.
    """
    for found in _outputs(backbone, bank, tasks, inputs):
        if not torch.isfinite(found.logits).all():
            raise InputError(
                "the outputs of the network are no finite numbers; the inputs are too large"
            )
        yield found


def _outputs(
    backbone: Backbone, bank: MaskBank, tasks: Collection[KnownTask], inputs: Tensor | Inputs
) -> Iterator[Outputs]:
    stacked = None
    if len(tasks) > 1 and Perceptron.fits(backbone, inputs):
        stacked = Perceptron(backbone, bank, inputs, len(tasks))
    shared = _SharedFeatures(backbone, inputs)
    waiting: dict[Hashable, _Chunk] = {}
    for position, task in enumerate(tasks):
        numbers = task.load() if stacked and task.is_mixture else None
        mixed = numbers is not None and Perceptron.takes(numbers)
        given = numbers if numbers is not None and mixed else task.view()
        if stacked is None or (isinstance(given, TaskView) and given.feature_keys is not None):
            assert isinstance(given, TaskView)
            yield Outputs([position], [task], shared.logits(given)[None])
            continue
        kind = task.num_classes, *stacked.kind(given)
        chunk = waiting.setdefault(kind, _Chunk())
        chunk.positions.append(position)
        chunk.tasks.append(task)
        chunk.given.append(given)
        chunk.bytes += stacked.bytes_of(given)
        if len(chunk.tasks) >= MOST_STACKED:
            yield waiting.pop(kind).run(stacked)
        while sum(each.bytes for each in waiting.values()) >= CHUNK_BYTES:
            largest = max(waiting, key=lambda kind: waiting[kind].bytes)
            yield waiting.pop(largest).run(stacked)
    if stacked is not None:
        while waiting:
            yield waiting.popitem()[1].run(stacked)


@dataclass
class _Chunk:
    """Tasks of one kind and number of classes, that wait to be run together."""

    positions: list[int] = field(default_factory=list)
    tasks: list[KnownTask] = field(default_factory=list)
    given: list[Coefficients | TaskView] = field(default_factory=list)
    bytes: int = 0

    def run(self, stacked: Perceptron) -> Outputs:
        logits = stacked.logits(self.given)[:, :, : self.tasks[0].num_classes]
        return Outputs(self.positions, self.tasks, logits)


class _SharedFeatures:
    """Logits of tasks in turn; features of a body that several of them read are computed once."""

    def __init__(self, backbone: Backbone, inputs: Tensor | Inputs) -> None:
        self._backbone, self._inputs = backbone, inputs
        self._read: dict[Hashable, Tensor | None] = {}

    @torch.no_grad()
    def logits(self, view: TaskView) -> Tensor:
        """(n, K), as `TaskView.outputs`."""
        if view.feature_keys is None:
            return view.outputs(self._backbone, self._inputs)
        networks = zip(view.feature_keys, (view.weights, *view.others), strict=True)
        return sum(self._one(view, *each) for each in networks)[:, : view.num_classes]

    def _one(self, view: TaskView, body: Hashable, weights: dict[str, Tensor]) -> Any:
        alone = TaskView(weights, view.statistics, view.num_classes, view.mode)
        features = self._read.get(body)
        if features is not None:
            return self._headed(features, weights)
        outputs = alone.outputs(self._backbone, self._inputs)
        if body not in self._read:  # most are read by one task alone
            self._read[body] = None
            return outputs
        features = alone.features(self._backbone, self._inputs)
        if torch.allclose(self._headed(features, weights), outputs, rtol=1e-3, atol=1e-4):
            self._read[body] = features  # else something follows the head
        return outputs

    def _headed(self, features: Tensor, weights: dict[str, Tensor]) -> Tensor:
        head = self._backbone.own_head
        assert head is not None
        weight, *bias = (weights[name] for name in head.shapes)
        return torch.nn.functional.linear(features, weight.flatten(1), *bias)
