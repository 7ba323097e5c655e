"""Several optimisations over one network side by side: one loop over their stacked weights.

Only where it gives what one after another gives: a trial before says whether it is the same, and
how many fit into the memory.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

import torch
from torch import Tensor

from impresslearn.checks import check_flag, torch_seed
from impresslearn.data import Inputs, TensorBatches, random_state
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.training.loop import FitResult, TaskTraining, Trainable, Weights, fit
from impresslearn.training.progress import Progress, silent

MEMORY = 2 * 1024**3
"""Bytes that problems side by side may take, about: far more small networks than fill a GPU."""
COPIES = 3
"""How often weights, and what a pass keeps for gradients, are there: stacked, with gradients."""
STATES = 4
"""A parameter, its gradient and two moments."""
TOLERANCE = 0.01
"""How far the logits of a batched pass may be off, as a share of the largest: TF32 counts as the
same, another draw does not."""

Problem = tuple[TaskTraining, Trainable]
Key = TypeVar("Key")


def side_by_side(backbone: Backbone, batched: bool | None) -> bool:
    """Whether to run problems side by side where that is possible: by default on a GPU only."""
    by_default = backbone.device.type == "cuda"
    return by_default if batched is None else check_flag("batched", batched)


def solve(
    keys: Sequence[Key],
    problem: Callable[[Key], Problem],
    batched: bool = False,
    progress: Progress = silent,
) -> Iterator[tuple[Key, Problem, FitResult | None]]:
    """Solves problems over one network with one recipe in turn, made when their turn comes.

    batched: as many at a time as fit into memory, if each one's phase and classes are the same;
    they have no result of their own, and `progress` tells of them.
    """
    most = 1
    if batched and len(keys) > 1:
        # In a thread of its own: that has its own views of the network, with whatever they count.
        with ThreadPoolExecutor(1) as thread:
            most = thread.submit(how_many, [problem(key) for key in keys[:2]]).result()
    while keys:
        some = keys[:most]
        problems = [problem(key) for key in some] if len(some) > 1 else []
        try:
            if problems:
                _run(problems, progress)
        except torch.OutOfMemoryError:
            most = len(some) // 2
            continue
        except Exception:  # one by one says which of them fails, and why
            problems = []
        if problems:
            yield from zip(some, problems, repeat(None))
        for key in some[len(problems) :]:
            alone = problem(key)
            yield key, alone, alone[0].fit(alone[1])
        keys = keys[len(some) :]


def how_many(problems: Sequence[Problem]) -> int:
    """How many problems like these two to run at once; 1 where a batched pass is not the same.

    It is not where norm statistics are gathered, where torch cannot batch what the network does, or
    where that draws random numbers or counts its passes. Tried on both problems' first batches,
    twice in turn and once batched: logits must agree, and all that Python code may draw from must
    be as it was (torch itself refuses to draw in a batched pass).
    """
    training = problems[0][0]
    backbone, phase = training.backbone, training.phase
    gathers = phase.mode == "train" and phase.statistics is not None
    if gathers or training.folds or not isinstance(training.source, TensorBatches):
        return 1
    size = training.recipe.batch_for(len(training.source))
    devices = [backbone.device] if backbone.device.type == "cuda" else []
    saved = random_state.state()

    def in_turn() -> tuple[Tensor, Tensor]:
        inputs, _ = next(SideBySide(problems).batches(size))
        parts = zip(problems, inputs.unbind(1), strict=True)
        logits = [phase.forward(backbone, each.weights()[0], part) for (_, each), part in parts]
        return inputs, torch.stack(logits)

    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            _, first = in_turn()  # what is made at the first pass and kept is there from now on
            before = _drawn_from(backbone, phase)
            inputs, second = in_turn()
            if _drawn_from(backbone, phase) != before:
                return 1
            weights = _stacked([each.weights()[0] for _, each in problems])
            batched = torch.vmap(partial(phase.forward, backbone), in_dims=(0, 1))(weights, inputs)
        allowed = TOLERANCE * float(first.abs().max())
        if any(float((each - batched).abs().max()) > allowed for each in (first, second)):
            return 1
        return max(1, MEMORY // max(1, _bytes_of(problems, inputs)))
    except Exception:  # whatever it is: if it is an error one by one too, that will say so
        return 1
    finally:
        random_state.restore(saved)


def _run(problems: Sequence[Problem], progress: Progress) -> None:
    training = problems[0][0]

    def loss(inputs: Tensor | Inputs, targets: Tensor) -> Tensor:
        weights, costs = zip(*(trained.weights() for _, trained in problems), strict=True)
        losses = torch.vmap(training.loss, in_dims=(0, 1, 1))(_stacked(weights), inputs, targets)
        return losses.sum() + sum(costs)

    parameters = [tensor for _, trained in problems for tensor in trained.parameters]
    fit(parameters, loss, SideBySide(problems), training.recipe, training.seed, progress)


class SideBySide:
    """Batches (b, K, ...) and (b, K) of K problems of one size, each in the order of its seed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._trainings = [training for training, _ in problems]
        self._generators = [
            torch.Generator().manual_seed(torch_seed(each.seed)) for each in self._trainings
        ]

    def __len__(self) -> int:
        return len(self._trainings[0].source)

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of all; `generator` is not used."""
        each_one = [
            training.source.batches(batch_size, own)
            for training, own in zip(self._trainings, self._generators, strict=True)
        ]
        for parts in zip(*each_one, strict=True):
            inputs, targets = zip(*parts, strict=True)
            yield torch.stack(inputs, dim=1), torch.stack(targets, dim=1)


def _stacked(weights: Sequence[Weights]) -> Weights:
    """K networks' weights as one tensor (K, ...) a layer."""
    return {name: torch.stack([each[name] for each in weights]) for name in weights[0]}


class _Snapshot(pickle.Pickler):
    """Pickles tensors and generators by their numbers; torch's own pickles are never the same."""

    def persistent_id(self, thing: Any) -> Any:
        if isinstance(thing, torch.Generator):
            thing = thing.get_state()
        if isinstance(thing, Tensor):
            values = thing.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return thing.dtype, thing.shape, values.numpy().tobytes()
        return None


def _drawn_from(backbone: Backbone, phase: TrainingPhase) -> bytes:
    """All that a pass may draw from or count in, as bytes: global generators, modules' attributes.

    Raises what pickle does where a module holds anything that cannot be compared.
    """
    content = io.BytesIO()
    generators = random_state.state(), list(torch.cuda.default_generators)
    states = *generators, backbone.attributes(phase.mode)
    _Snapshot(content).dump(states)
    return content.getvalue()


def _bytes_of(problems: Sequence[Problem], inputs: Tensor) -> int:
    """About the memory that one problem more takes while it is optimised.

    Counted is what the last problem adds: the frozen weights and the bank, say, are there once.
    """
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    alive, before = [], 0
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        for (training, trained), part in zip(problems, inputs.unbind(1), strict=True):
            before = sum(kept.values())
            made = trained.weights()
            for weight in made[0].values():
                count(weight)
            alive.append((made, training.phase.forward(training.backbone, made[0], part)))
    source = training.source
    data = source.inputs.nbytes if isinstance(source, TensorBatches) else 0
    if source is problems[0][0].source:
        data = 0
    parameters = sum(tensor.nbytes for tensor in trained.parameters)
    return COPIES * (sum(kept.values()) - before) + STATES * parameters + data + inputs.nbytes
