"""Several optimisations over one network side by side, in one loop.

On a CPU each network computes in turn, and what their steps have in common is done once: the
optimiser, and the rounding and pricing of trained integers, small operations that cost a single
task as much time as its network does. Every number is the same bit for bit as alone. On a GPU the
stacked weights of all networks pass through `torch.vmap` where they can, and numbers are the same
up to rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from impresslearn.checks import torch_seed
from impresslearn.data import TensorBatches
from impresslearn.data.examples import drawing
from impresslearn.training.loop import (
    FitResult,
    StepLoss,
    TaskTraining,
    Trainable,
    endless_batches,
    fit,
)
from impresslearn.training.progress import Progress, silent

# Bytes that tasks side by side may take, approximately: many small networks fill a GPU.
MEMORY = 2 * 1024**3
MOST_ON_CPU = 16  # more than this gain nothing on a CPU, and leave its cache
# Copies of the weights in memory: stacked, with gradients, and about as much in activations.
COPIES = 6
STATES = 4  # a parameter, its gradient and two moments of Adam

Problem = tuple[TaskTraining, Trainable]
Key = TypeVar("Key")


def solve(
    keys: Sequence[Key],
    problem: Callable[[Key], Problem],
    batched: bool = False,
    progress: Progress = silent,
) -> Iterator[tuple[Key, Problem, FitResult]]:
    """Solves problems over one network, each made when its turn comes.

    - problem: makes the problem of a key; all must have one recipe and one number of steps, and on
      a GPU data of one size.
    - batched: whether to solve up to `max_parallel_tasks` at a time, which `progress` shows
      together.
    """
    left = list(keys)
    most = max_parallel_tasks(problem(left[0])) if batched and len(left) > 1 else 1
    while left:
        most = min(most, len(left))
        if most == 1:
            training, trainable = problem(left[0])
            yield left.pop(0), (training, trainable), training.fit(trainable)
            continue
        try:
            problems = [problem(key) for key in left[:most]]
            results = _fit_together(problems, progress)
        except torch.OutOfMemoryError:
            most //= 2  # the estimate was too low; try half as many
            continue
        except Exception:  # networks and data are the user's and may raise anything
            # One by one says which of them fails, if any does: vmap refuses some networks.
            most = 1
            continue
        for solved, result in zip(problems, results, strict=True):
            yield left.pop(0), solved, result


def max_parallel_tasks(problem: Problem) -> int:
    """How many problems like this one to solve at a time: what MEMORY holds, approximately.

    The problem itself cannot be solved any more: it has taken steps.
    """
    training, trainable = problem
    with torch.no_grad():
        weights, _ = trainable.step_weights()
    if not stacks(training.backbone.device):
        size = _graph_bytes(training, trainable)
        return max(1, min(MEMORY // max(1, size), MOST_ON_CPU))
    size = COPIES * sum(weight.nbytes for weight in weights.values())
    size += STATES * sum(parameter.nbytes for parameter in trainable.parameters)
    if isinstance(training.source, TensorBatches):
        size += training.source.inputs.nbytes
    return max(1, MEMORY // max(1, size))


def _graph_bytes(training: TaskTraining, trainable: Trainable) -> int:
    """The bytes of a step of a problem on a CPU: what autograd keeps, and the parameters."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # a tensor itself would keep the graph that keeps it

    generator = torch.Generator().manual_seed(0)
    size = training.recipe.batch_for(len(training.source))
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with drawing(0), hooks:
        inputs, targets = next(iter(training.source.batches(size, generator)))
        weights, _ = trainable.step_weights()
        loss = training.loss(weights, inputs, targets)
    del loss  # until now nothing that is kept was freed
    return sum(kept.values()) + STATES * sum(leaf.nbytes for leaf in trainable.parameters)


def stacks(device: torch.device) -> bool:
    """Whether networks on a device compute as one stack: launching small kernels takes longer."""
    return device.type != "cpu"


def _fit_together(problems: Sequence[Problem], progress: Progress) -> list[FitResult]:
    training = problems[0][0]
    draws = _Draws(problems)
    step_losses = [StepLoss(*problem) for problem in problems]
    losses = partial(_in_turn, step_losses, draws)
    gathers = training.phase.mode == "train" and training.phase.statistics is not None
    plain = isinstance(training.source, TensorBatches) and not gathers and not training.folds
    if plain and stacks(training.backbone.device):
        losses, step_losses = partial(_stacked, problems), []
    parameters = list(chain.from_iterable(trainable.parameters for _, trainable in problems))
    quantized = [trainable.quantized for _, trainable in problems]
    if all(quantized):
        quantized[0].join(quantized)
    source = _SideBySide(problems, draws)
    result = fit(parameters, losses, source, training.recipe, training.seed, progress)
    for step_loss in step_losses:  # what gathers norm statistics is not stacked
        step_loss.end()
    final_losses = result.final_losses or [result.final_loss] * len(problems)  # of no step
    return [FitResult(result.steps, loss) for loss in final_losses]


class _Draws:
    """torch's global random state, which dropout draws from, kept apart for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._states = []
        for training, _ in problems:
            generator = torch.Generator().manual_seed(torch_seed(training.seed))
            self._states.append(generator.get_state())

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Draws continue where this problem's last draws ended."""
        torch.default_generator.set_state(self._states[number])
        yield
        self._states[number] = torch.default_generator.get_state()


def _in_turn(
    step_losses: Sequence[StepLoss], draws: _Draws, inputs: Sequence[Any], targets: Sequence[Tensor]
) -> Tensor:
    """The losses of all problems, each network computing in turn."""
    losses = []
    for number, step_loss in enumerate(step_losses):
        with draws.of(number):
            losses.append(step_loss(inputs[number], targets[number]))
    return torch.stack(losses)


def _stacked(
    problems: Sequence[Problem], inputs: Sequence[Tensor], targets: Sequence[Tensor]
) -> Tensor:
    """The losses of all problems at once, for a GPU."""
    pairs = [trainable.step_weights() for _, trainable in problems]
    networks, costs = zip(*pairs, strict=True)
    stacked = {}
    for name in networks[0]:
        stacked[name] = torch.stack([weights[name] for weights in networks])
    cost = torch.stack([torch.as_tensor(cost, device=targets[0].device) for cost in costs])
    losses = torch.vmap(problems[0][0].loss)
    # Their sum has the gradients of each: the problems share no parameter.
    return losses(stacked, torch.stack(list(inputs)), torch.stack(list(targets))) + cost


class _SideBySide:
    """A batch of every problem at each step: a list of inputs and a list of targets."""

    def __init__(self, problems: Sequence[Problem], draws: _Draws) -> None:
        self._trainings = [training for training, _ in problems]
        self._draws = draws

    def __len__(self) -> int:
        return len(self._trainings[0].source)

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Any, Any]]:
        """Endless batches; each problem has its own batch size and generator."""
        streams = []
        for training in self._trainings:
            own_generator = torch.Generator().manual_seed(torch_seed(training.seed))
            streams.append(endless_batches(training.source, training.recipe, own_generator))
        while True:
            parts = []
            for number, stream in enumerate(streams):
                with self._draws.of(number):  # an augmentation may ignore its generator
                    parts.append(next(stream))
            inputs, targets = zip(*parts, strict=True)
            yield inputs, targets
