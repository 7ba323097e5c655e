"""Trains several tasks over one network together, in one loop.

On a CPU the networks of the tasks compute one after another in each step. The small operations of
all tasks (the optimiser, the rounding and pricing of integers) are done together, because they take
a single task as long as its network does. The results are bit-identical to separate trainings. On a
GPU, `torch.vmap` computes stacked weights if possible, and results are equal up to rounding.
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
from impresslearn.data.examples import drawing, draws
from impresslearn.training.loop import (
    FitResult,
    StepLoss,
    TaskTraining,
    Trainable,
    endless_batches,
    fit,
)
from impresslearn.training.progress import Progress, silent

# The approximate bytes for tasks that train together: many small networks fill a GPU.
MEMORY = 2 * 1024**3
MOST_ON_CPU = 16  # training more tasks together is no faster on a CPU: its cache is full
# An estimate of memory in copies of the weights: stacked weights, gradients and activations.
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
    """Solves the problem of each key over one network. A problem is made when its turn comes.

    - problem: makes a key's problem. All have one recipe, number of steps and, on a GPU, data size.
    - batched: whether to solve up to `max_parallel_tasks` problems at a time, in one progress bar.
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
        except Exception:  # networks and data of the user may raise any error
            # Solving one by one shows which problem fails, if any: vmap refuses some networks.
            most = 1
            continue
        for solved, result in zip(problems, results, strict=True):
            yield left.pop(0), solved, result


def max_parallel_tasks(problem: Problem) -> int:
    """The number of problems like this one that fit approximately in MEMORY.

    The given problem must not be solved afterwards, because it has taken a step.
    """
    training, trainable = problem
    if not stacks(training.backbone.device):
        size = _graph_bytes(training, trainable)
        return max(1, min(MEMORY // max(1, size), MOST_ON_CPU))
    with torch.no_grad():
        weights, _ = trainable.step_weights()
    size = COPIES * sum(weight.nbytes for weight in weights.values())
    size += STATES * sum(parameter.nbytes for parameter in trainable.parameters)
    if isinstance(training.source, TensorBatches):
        size += training.source.inputs.nbytes
    return max(1, MEMORY // max(1, size))


def _graph_bytes(training: TaskTraining, trainable: Trainable) -> int:
    """The bytes of a step on a CPU: the tensors that autograd keeps, and the parameters."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would form a cycle with the graph

    generator = torch.Generator().manual_seed(0)
    size = training.recipe.batch_for(len(training.source))
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with drawing(0):
        untouched = draws()[1:]
    with drawing(0), hooks:
        inputs, targets = next(iter(training.source.batches(size, generator)))
        weights, _ = trainable.step_weights()
        loss = training.loss(weights, inputs, targets)
        # Tasks side by side would share the states of NumPy and Python: allow one at a time.
        least = 0 if draws()[1:] == untouched else MEMORY
    del loss  # it kept all noted tensors alive until here
    return max(least, sum(kept.values()) + STATES * sum(x.nbytes for x in trainable.parameters))


def stacks(device: torch.device) -> bool:
    """Whether tasks are stacked on a device. On a GPU many small kernels would be slower."""
    return device.type != "cpu"


def _fit_together(problems: Sequence[Problem], progress: Progress) -> list[FitResult]:
    training = problems[0][0]
    step_losses, states = [], []
    for problem in problems:
        step_losses.append(StepLoss(*problem))
        states.append(torch.Generator().manual_seed(torch_seed(problem[0].seed)).get_state())

    def in_turn(inputs: Sequence[Any], targets: Sequence[Tensor]) -> Tensor:
        losses = []
        for number, step_loss in enumerate(step_losses):
            with _own_draws(states, number):
                losses.append(step_loss(inputs[number], targets[number]))
        return torch.stack(losses)

    gathers = training.phase.mode == "train" and training.phase.statistics is not None
    plain = isinstance(training.source, TensorBatches) and not gathers and not training.folds
    is_stacked = plain and stacks(training.backbone.device)
    losses: Callable[..., Tensor] = partial(_stacked, problems) if is_stacked else in_turn
    parameters = list(chain.from_iterable(trainable.parameters for _, trainable in problems))
    quantized = [trainable.quantized for _, trainable in problems]
    if all(quantized):
        quantized[0].join(quantized)
    source = _SideBySide(problems, states)
    result = fit(parameters, losses, source, training.recipe, training.seed, progress)
    for step_loss in () if is_stacked else step_losses:
        step_loss.end()
    final_losses = result.final_losses or [result.final_loss] * len(problems)  # without steps
    return [FitResult(result.steps, loss) for loss in final_losses]


@contextmanager
def _own_draws(states: list[Tensor], number: int) -> Iterator[None]:
    """Gives a problem its own copy of torch's global random state, which dropout uses."""
    torch.default_generator.set_state(states[number])
    yield
    states[number] = torch.default_generator.get_state()


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
    # The gradient of their sum is the gradient of each: the problems share no parameter.
    return losses(stacked, torch.stack(list(inputs)), torch.stack(list(targets))) + cost


class _SideBySide:
    """The batches of all problems: in each step a list of inputs and a list of targets."""

    def __init__(self, problems: Sequence[Problem], states: list[Tensor]) -> None:
        self._trainings = [training for training, _ in problems]
        self._states = states

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
                with _own_draws(self._states, number):  # an augmentation may ignore its generator
                    parts.append(next(stream))
            inputs, targets = zip(*parts, strict=True)
            yield inputs, targets
