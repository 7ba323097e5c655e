"""A trial before problems run side by side: whether that is the same, and how many fit."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from impresslearn.data import draws
from impresslearn.learner.batched_problems import Problem, SideBySide, stacked
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import Recipe

MEMORY = 2 * 1024**3
"""Bytes that problems side by side may take, about: far more small networks than fill a GPU."""
COPIES = 3
"""How often weights, and what a pass keeps for gradients, are there: stacked, with gradients."""
STATES = 4
"""A parameter, its gradient and two moments."""
TOLERANCE = 0.01
"""How far the logits of a batched pass may be off, as a share of the largest: TF32 counts as the
same, another draw does not."""


def how_many(
    backbone: Backbone, phase: TrainingPhase, problems: Sequence[Problem], recipe: Recipe
) -> int:
    """How many problems like these two to run at once; 1 where a batched pass is not the same.

    It is not where torch cannot batch what the network does, or where that draws random numbers or
    counts its passes. Tried on both problems' first batches, twice in turn and once together:
    logits must agree, and all that Python code may draw from must be as it was (torch itself
    refuses to draw in a batched pass).
    """
    size = recipe.batch_for(len(problems[0].source))
    devices = [backbone.device] if backbone.device.type == "cuda" else []
    saved = draws.state()

    def in_turn() -> tuple[Tensor, Tensor]:
        inputs, _ = next(SideBySide(problems).batches(size))
        parts = zip(problems, inputs.unbind(1), strict=True)
        logits = [phase.forward(backbone, each.weights()[0], own) for each, own in parts]
        return inputs, torch.stack(logits)

    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            _, first = in_turn()  # what is made at the first pass and kept is there from now on
            before = _drawn_from(backbone, phase)
            inputs, second = in_turn()
            if _drawn_from(backbone, phase) != before:
                return 1
            weights = stacked([each.weights()[0] for each in problems])
            together = torch.vmap(partial(phase.forward, backbone), in_dims=(0, 1))(weights, inputs)
        allowed = TOLERANCE * float(first.abs().max())
        if any(float((each - together).abs().max()) > allowed for each in (first, second)):
            return 1
        return max(1, MEMORY // max(1, _bytes_of(backbone, phase, problems, inputs)))
    except Exception:  # whatever it is: if it is an error one by one too, that will say so
        return 1
    finally:
        draws.restore(saved)


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
    states = draws.state(), list(torch.cuda.default_generators), backbone.attributes(phase.mode)
    _Snapshot(content).dump(states)
    return content.getvalue()


def _bytes_of(
    backbone: Backbone, phase: TrainingPhase, problems: Sequence[Problem], inputs: Tensor
) -> int:
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
        for problem, own in zip(problems, inputs.unbind(1), strict=True):
            before = sum(kept.values())
            made = problem.weights()
            for weight in made[0].values():
                count(weight)
            alive.append((made, phase.forward(backbone, made[0], own)))
    first, last = problems[0], problems[-1]
    parameters = sum(tensor.nbytes for tensor in last.parameters)
    data = 0 if last.source is first.source else last.source.inputs.nbytes
    return COPIES * (sum(kept.values()) - before) + STATES * parameters + data + inputs.nbytes
