"""Several optimisations over one network side by side: one loop over their stacked weights.

Only where it gives what one after another gives: a trial before says whether it is the same, and
how many fit into the memory.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from impresslearn.data import TensorBatches, random_state
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy
from impresslearn.optimisation.progress import Progress, silent

MEMORY = 2 * 1024**3
"""Bytes that problems side by side may take, about: far more small networks than fill a GPU."""
COPIES = 3
"""How often weights, and what a pass keeps for gradients, are there: stacked, with gradients."""
STATES = 4
"""A parameter, its gradient and two moments."""
TOLERANCE = 0.01
"""How far the logits of a batched pass may be off, as a share of the largest: TF32 counts as the
same, another draw does not."""

Weights = dict[str, Tensor]
Key = TypeVar("Key")


@dataclass(frozen=True)
class Problem:
    """One of many optimisations over the same network.

    parameters: what it changes; weights: the effective weights they make, and what they cost beside
    the mean cross-entropy; source, seed: its data and their order; result: what it found.
    """

    parameters: list[Tensor]
    weights: Callable[[], tuple[Weights, Tensor | float]]
    source: TensorBatches
    seed: int
    result: Callable[[], Any]


@dataclass(frozen=True)
class SharedTraining:
    """What problems side by side have in common: network, norms, number of classes and recipe."""

    backbone: Backbone
    phase: TrainingPhase
    num_classes: int
    recipe: Recipe
    progress: Progress = silent


def side_by_side(backbone: Backbone, batched: bool | None) -> bool:
    """Whether to run problems side by side where that is possible: by default on a GPU only."""
    return backbone.device.type == "cuda" if batched is None else batched


def solve(
    shared: SharedTraining, keys: Sequence[Key], problem: Callable[[Key], Problem]
) -> Iterator[tuple[Sequence[Key], list[Any] | None]]:
    """Solves problems side by side, as many at a time as fit into memory.

    Yields keys with the results of their problems, or None for those to be solved one by one.
    """
    most, phase = 1, shared.phase
    gathers = phase.mode == "train" and phase.statistics is not None
    if len(keys) > 1 and not gathers:
        # In a thread of its own: that has its own views of the network, with whatever they count.
        with ThreadPoolExecutor(1) as thread:
            most = thread.submit(how_many, shared, [problem(key) for key in keys[:2]]).result()
    while most > 1 and len(keys) > 1:
        some, found = keys[:most], None
        problems = [problem(key) for key in some]
        try:
            found = _run(shared, problems)
        except torch.OutOfMemoryError:
            most = len(some) // 2
            continue
        except Exception:  # one by one says which of them fails, and why
            pass
        keys = keys[len(some) :]
        yield some, found
    if keys:
        yield keys, None


def how_many(shared: SharedTraining, problems: Sequence[Problem]) -> int:
    """How many problems like these two to run at once; 1 where a batched pass is not the same.

    It is not where torch cannot batch what the network does, or where that draws random numbers or
    counts its passes. Tried on both problems' first batches, twice in turn and once batched: logits
    must agree, and all that Python code may draw from must be as it was (torch itself refuses to
    draw in a batched pass).
    """
    backbone, phase = shared.backbone, shared.phase
    size = shared.recipe.batch_for(len(problems[0].source))
    devices = [backbone.device] if backbone.device.type == "cuda" else []
    saved = random_state.state()

    def in_turn() -> tuple[Tensor, Tensor]:
        inputs, _ = next(SideBySide(problems).batches(size))
        parts = zip(problems, inputs.unbind(1), strict=True)
        logits = [phase.forward(backbone, each.weights()[0], part) for each, part in parts]
        return inputs, torch.stack(logits)

    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            _, first = in_turn()  # what is made at the first pass and kept is there from now on
            before = _drawn_from(backbone, phase)
            inputs, second = in_turn()
            if _drawn_from(backbone, phase) != before:
                return 1
            weights = _stacked([each.weights()[0] for each in problems])
            batched = torch.vmap(partial(phase.forward, backbone), in_dims=(0, 1))(weights, inputs)
        allowed = TOLERANCE * float(first.abs().max())
        if any(float((each - batched).abs().max()) > allowed for each in (first, second)):
            return 1
        return max(1, MEMORY // max(1, _bytes_of(shared, problems, inputs)))
    except Exception:  # whatever it is: if it is an error one by one too, that will say so
        return 1
    finally:
        random_state.restore(saved)


def _run(shared: SharedTraining, problems: Sequence[Problem]) -> list[Any]:
    def one_loss(weights: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
        logits = shared.phase.forward(shared.backbone, weights, inputs)[:, : shared.num_classes]
        return cross_entropy(logits, targets, shared.recipe.label_smoothing)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        made = [problem.weights() for problem in problems]
        weights = _stacked([weights for weights, _ in made])
        losses = torch.vmap(one_loss, in_dims=(0, 1, 1))(weights, inputs, targets)
        return losses.sum() + sum(price for _, price in made)

    parameters = [tensor for problem in problems for tensor in problem.parameters]
    seed = problems[0].seed
    fit(parameters, loss, SideBySide(problems), shared.recipe, seed, shared.progress)
    return [problem.result() for problem in problems]


class SideBySide:
    """Batches (b, K, ...) and (b, K) of K sources of one size, each in its own order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._sources = [problem.source for problem in problems]
        self._generators = [torch.Generator().manual_seed(each.seed) for each in problems]

    def __len__(self) -> int:
        return len(self._sources[0])

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in the orders of the sources' own seeds; `generator` is not used."""
        each_one = [
            source.batches(batch_size, each)
            for source, each in zip(self._sources, self._generators, strict=True)
        ]
        for parts in zip(*each_one, strict=True):
            yield tuple(torch.stack(each, dim=1) for each in zip(*parts, strict=True))  # type: ignore[misc]


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


def _bytes_of(shared: SharedTraining, problems: Sequence[Problem], inputs: Tensor) -> int:
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
        for problem, part in zip(problems, inputs.unbind(1), strict=True):
            before = sum(kept.values())
            made = problem.weights()
            for weight in made[0].values():
                count(weight)
            alive.append((made, shared.phase.forward(shared.backbone, made[0], part)))
    first, last = problems[0], problems[-1]
    parameters = sum(tensor.nbytes for tensor in last.parameters)
    data = 0 if last.source is first.source else last.source.inputs.nbytes
    return COPIES * (sum(kept.values()) - before) + STATES * parameters + data + inputs.nbytes
