"""Several optimisations over one network side by side: one loop over their stacked weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from impresslearn.checks import torch_seed
from impresslearn.data import Inputs, TensorBatches
from impresslearn.errors import ImpressLearnError, InputError, TrainingError
from impresslearn.training.loop import FitResult, TaskTraining, Trainable, fit
from impresslearn.training.progress import Progress, silent

# Bytes that tasks side by side may take, approximately: many small networks fill a GPU.
MEMORY = 2 * 1024**3
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
) -> Iterator[tuple[Key, Problem, FitResult | None]]:
    """Solves problems over one network, each made when its turn comes.

    - problem: makes the problem of a key; all must have data of one size, and one recipe.
    - batched: whether to solve up to `max_parallel_tasks` at a time; these have no `FitResult`,
      and `progress` shows them together.

    Raises InputError where problems cannot be solved side by side.
    """
    left, most = list(keys), 0
    while left:
        first = problem(left[0])
        if not batched or len(keys) == 1:
            yield left.pop(0), first, first[0].fit(first[1])
            continue
        _check_batchable(first[0])
        most = most or max_parallel_tasks(first)
        problems = [first, *(problem(key) for key in left[1:most])]
        try:
            _fit_together(problems, progress)
        except torch.OutOfMemoryError:
            if len(problems) == 1:
                raise
            most = len(problems) // 2  # the estimate was too low; try half as many
            continue
        except TrainingError:
            # One by one says which of them diverges; those before it are solved.
            for key in left[: len(problems)]:
                alone = problem(key)
                yield left.pop(0), alone, alone[0].fit(alone[1])
            continue
        for solved in problems:
            yield left.pop(0), solved, None


def max_parallel_tasks(problem: Problem) -> int:
    """How many problems like this one fit into MEMORY, approximately."""
    training, trained = problem
    with torch.no_grad():
        weights, _ = trained.step_weights()
    size = COPIES * sum(weight.nbytes for weight in weights.values())
    size += STATES * sum(parameter.nbytes for parameter in trained.parameters)
    if isinstance(training.source, TensorBatches):
        size += training.source.inputs.nbytes
    return max(1, MEMORY // max(1, size))


def _check_batchable(training: TaskTraining) -> None:
    reason = None
    if training.phase.mode == "train" and training.phase.statistics is not None:
        reason = "its tasks gather norm statistics"
    elif training.folds:
        reason = "its tasks fold norm statistics (fold_after)"
    elif not isinstance(training.source, TensorBatches):
        reason = "the data are not one tensor in memory"
    if reason:
        name = training.backbone.name
        raise InputError(f"batched=True cannot be used with {name}: {reason}; use batched=False")


def _fit_together(problems: Sequence[Problem], progress: Progress) -> None:
    training = problems[0][0]

    def loss(inputs: Tensor | Inputs, targets: Tensor) -> Tensor:
        networks, costs = zip(*[trained.step_weights() for _, trained in problems], strict=True)
        stacked = {}
        for name in networks[0]:
            stacked[name] = torch.stack([weights[name] for weights in networks])
        # The sum of the losses has the gradients of each: the problems share no parameter.
        losses = torch.vmap(training.loss, in_dims=(0, 1, 1))(stacked, inputs, targets)
        return losses.sum() + sum(costs)

    parameters = list(chain.from_iterable(trained.parameters for _, trained in problems))
    try:
        fit(parameters, loss, SideBySide(problems), training.recipe, training.seed, progress)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        # Inputs that the network is said not to take fit it, as one task at a time has shown.
        failure = error.__cause__ if isinstance(error, ImpressLearnError) else error
        if failure is None or isinstance(error, torch.OutOfMemoryError):
            raise
        reason = str(failure).split("\n", 1)[0][:200]
        raise InputError(
            f"batched=True cannot be used with {training.backbone.name}, as torch.vmap fails "
            f"({reason}); use batched=False"
        ) from error


class SideBySide:
    """Batches (b, K, ...) and (b, K) of K problems of one size, each in the order of its seed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._sources, self._generators = [], []
        for training, _ in problems:
            self._sources.append(training.source)
            self._generators.append(torch.Generator().manual_seed(torch_seed(training.seed)))

    def __len__(self) -> int:
        return len(self._sources[0])

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of all; `generator` is not used."""
        pairs = zip(self._sources, self._generators, strict=True)
        streams = [source.batches(batch_size, own_generator) for source, own_generator in pairs]
        for parts in zip(*streams, strict=True):
            inputs, targets = zip(*parts, strict=True)
            yield torch.stack(inputs, dim=1), torch.stack(targets, dim=1)
