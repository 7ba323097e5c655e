"""The measurements of `python -m benchmarks speed`: training steps, whole epochs and tasks.

Each figure and its reference are measured in the same run.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from timeit import repeat, timeit
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.checks import check_choice
from impresslearn.coefficients.masks import equal_alphas, mix, mixture_of
from impresslearn.data import Examples
from impresslearn.errors import NotLearnedWarning
from impresslearn.inference.superposition import Superposition
from impresslearn.inference.task_inference import OBJECTIVES
from impresslearn.kernels import unpack
from impresslearn.learner import ImpressLearner
from impresslearn.masks import PopupScores, random_bank
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks import Backbone, create_backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.training.loop import Recipe

MASKS = 100
IMAGES, BATCH = 60_000, 128
BLOCK = 5  # consecutive calls of an action
SAMPLED_STEPS = 40  # steps to time of a reference whose whole epoch would take minutes
LR = 1e-5  # so small that hundreds of repeats hardly change the numbers
COST, SPEEDUP = "value / reference", "reference / value"
Action = Callable[[], object]
Record = dict[str, Any]
Batch = tuple[Tensor, Tensor]
Weights = Callable[[], dict[str, Tensor]]


def measure(only: str | None = None, threads: int = 1) -> Iterator[Record]:
    """Yields a record for each figure as soon as it is measured.

    - only: one of `CASES`; by default all
    - threads: the number of threads of torch and the kernels; restored afterwards
    """
    cases = CASES if only is None else [check_choice("the measurement", only, CASES)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", NotLearnedWarning)  # labels are random here
    try:
        for name in cases:
            yield from CASES[name]()
    finally:
        torch.set_num_threads(before)


def mix_steps() -> Iterator[Record]:
    """A coefficient step compared with a plain training step, at N = 10 and 100."""
    backbone, batch = _lenet(), random_batch()
    for masks in (10, MASKS):
        step = coefficient_step(backbone, random_bank(backbone.layers, masks), batch)
        (value, plain), n = minima([step, plain_step(backbone, batch)])
        yield _figure(f"mix_step_ratio_{masks}", value, plain, n)


def mix_references() -> Iterator[Record]:
    """A coefficient step at N = 100 compared with a loop over float masks and a stacked product."""
    backbone, batch = _lenet(), random_batch()
    bank = random_bank(backbone.layers, MASKS)
    steps = [make(backbone, bank, batch) for make in (coefficient_step, loop_step, dense_step)]
    (value, loop, dense), n = minima(steps, seconds=6)
    yield _figure("mix_vs_loop", value, loop, n, SPEEDUP)
    yield _figure("mix_vs_dense", value, dense, n, SPEEDUP)


def popup_steps() -> Iterator[Record]:
    """An edge-popup step compared with a plain training step, and with edge-popup by sorting."""
    backbone, batch = _lenet(), random_batch()
    steps = [make(backbone, batch) for make in (popup_step, plain_step, sorted_popup_step)]
    (value, plain, sorting), n = minima(steps)
    yield _figure("popup_step_ratio", value, plain, n)
    yield _figure("popup_vs_sort", value, sorting, n, SPEEDUP)


def inference() -> Iterator[Record]:
    """One gradient over 100 superposed masks compared with a training step; a warm prediction."""
    backbone, batch = _lenet(), random_batch()
    bank = random_bank(backbone.layers, MASKS)
    masks = [mixture_of(shares, bank.layers) for shares in torch.eye(MASKS)]
    superposition = Superposition(backbone, bank, masks, 10)

    def gradient() -> None:
        shares = superposition.uniform().requires_grad_(True)
        logits = backbone.forward(superposition.weights(shares), batch[0])
        torch.autograd.grad(OBJECTIVES["information"](logits), shares)

    (value, plain), n = minima([gradient, plain_step(backbone, batch)])
    yield _figure("inference_gradient_ratio", value, plain, n)
    learner = _learner(backbone, 10, Recipe(epochs=1)).learn_task("a", batch)
    module = copy.deepcopy(backbone.module).eval()

    @torch.no_grad()
    def forward() -> None:
        module(batch[0]).argmax(dim=1).numpy()

    (value, plain), n = minima([lambda: learner.predict(batch[0], "a"), forward])
    yield _figure("warm_predict_ratio", value, plain, n)


def epochs() -> Iterator[Record]:
    """One epoch of 60,000 images, by coefficients at N = 100 and by edge-popup."""
    # This library's epochs run in full. The references transform images one by one and would take
    # minutes, so their loader and steps are timed on 40 batches and scaled to an epoch.
    backbone, rng = _lenet(), np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, IMAGES)
    inputs = torch.from_numpy(images).unsqueeze(1).float().div_(255).sub_(0.1307).div_(0.3081)
    batch = inputs[:BATCH], torch.from_numpy(labels[:BATCH])
    order = torch.from_numpy(rng.permutation(784))

    def load() -> Tensor:
        """A batch of images, transformed and permuted one by one, as usual training scripts do."""
        batch = []
        for image in images[rng.integers(0, IMAGES, BATCH)]:
            pixels = torch.from_numpy(image).float().div(255).sub(0.1307).div(0.3081)
            batch.append(pixels.view(-1)[order].view(1, 28, 28))
        return torch.stack(batch)

    loading = _mean_seconds(load)
    bank = random_bank(backbone.layers, MASKS)
    ours = _learner(backbone, MASKS, Recipe(epochs=1, batch_size=BATCH))
    recipe = Recipe(lr=0.03, epochs=1, batch_size=BATCH)
    popup = ImpressLearner(backbone, basis_recipe=recipe, progress=False)
    for name, learn, reference in (
        ("coefficient_epoch", ours.learn_task, loop_step(backbone, bank, batch)),
        ("popup_epoch", popup.learn_basis, sorted_popup_step(backbone, batch)),
    ):
        theirs = (loading + _mean_seconds(reference)) * -(-IMAGES // BATCH)
        value = timeit(partial(learn, "epoch", Examples(inputs, labels)), number=1)
        yield _figure(name, value, theirs, 1, SPEEDUP, "s")


def tasks() -> Iterator[Record]:
    """Whether costs are linear in N; the 2,000th task compared with the second."""
    backbone, steps = _lenet(), []
    for masks in (40, 60, 240):  # all by the same loops
        bank = random_bank(backbone.layers, masks)
        steps.append(coefficient_step(backbone, bank, random_batch()))
    (at_40, at_60, at_240), n = minima(steps)
    # The cost of 180 more masks, divided by nine times the cost of 20 more: 1 if it is linear.
    yield _figure("linear_in_masks", at_240 - at_60, 9 * (at_60 - at_40), n)
    # Two learners take turns, so that both have the same noise.
    data, once = random_batch(64), Recipe(epochs=1, batch_size=64)
    old, fresh = _learner(backbone, 10, once), _learner(backbone, 10, once)
    for number in range(2000):
        old.learn_task(f"task {number}", data)
    pairs = []
    for number in range(100):
        name = f"new {number}"
        late = timeit(partial(old.learn_task, name, data), number=1)
        pairs.append((late, timeit(partial(fresh.learn_task, name, data), number=1)))
    late, early = 1e3 * np.median(np.array(pairs), axis=0)
    yield _figure("task_2000_vs_task_2", float(late), float(early), len(pairs))


def resnet_steps() -> Iterator[Record]:
    """ResNet-18 of width 48, N = 10, batch 64: a coefficient step compared with a plain step."""
    backbone = create_backbone("resnet18", 10, seed=0)
    batch = random_batch(64, (3, 32, 32))
    step = coefficient_step(backbone, random_bank(backbone.layers, 10), batch)
    (value, plain), n = minima([step, plain_step(backbone, batch)], seconds=20, least=3)
    yield _figure("resnet18_step_ratio", value, plain, n)


CASES: dict[str, Callable[[], Iterator[Record]]] = {
    "mix": mix_steps,
    "references": mix_references,
    "popup": popup_steps,
    "inference": inference,
    "epochs": epochs,
    "tasks": tasks,
    "resnet": resnet_steps,
}


def plain_step(backbone: Backbone, batch: Batch) -> Action:
    """Ordinary training of the same network: forward, backward and fused Adam on all weights."""
    module, (inputs, targets) = copy.deepcopy(backbone.module).train(), batch
    module.requires_grad_(True)
    flat = inputs.flatten(1) if len(backbone.input_shape or ()) == 1 else inputs
    return _step(module.parameters(), lambda: F.cross_entropy(module(flat), targets))


def coefficient_step(backbone: Backbone, bank: MaskBank, batch: Batch) -> Action:
    """This library's step for learning coefficients."""
    alphas = _alphas(bank)
    weights = partial(mix, bank, backbone.weights, alphas)
    return _step_on(backbone, batch, alphas, weights)


def loop_step(backbone: Backbone, bank: MaskBank, batch: Batch) -> Action:
    """The usual implementation: a Python loop over float masks for every layer."""

    def mixed(masks: Tensor, alpha: Tensor) -> Tensor:
        total = torch.zeros(masks.shape[1:])
        for mask, coefficient in zip(masks, alpha, strict=True):
            total = total + coefficient * mask
        return total

    return _float_step(backbone, bank, batch, mixed)


def dense_step(backbone: Backbone, bank: MaskBank, batch: Batch) -> Action:
    """Another implementation: a matrix-vector product over each layer's stacked float masks."""

    def mixed(masks: Tensor, alpha: Tensor) -> Tensor:
        return (alpha @ masks.flatten(1)).view(masks.shape[1:])

    return _float_step(backbone, bank, batch, mixed)


def _float_step(backbone: Backbone, bank: MaskBank, batch: Batch, mixed: Any) -> Action:
    """A step in which `mixed` combines each layer's float masks with its coefficients."""
    alphas, masks = _alphas(bank), {}
    for number, layer in enumerate(bank.layers):
        bits = unpack(bank.bits(number), layer.fan_in)
        masks[layer.name] = bits.float().reshape(len(bank), *layer.shape)

    def weights() -> dict[str, Tensor]:
        changed = {}
        for (name, stack), alpha in zip(masks.items(), alphas, strict=True):
            changed[name] = backbone.weights[name] * mixed(stack, alpha)
        return changed

    return _step_on(backbone, batch, alphas, weights)


def popup_step(backbone: Backbone, batch: Batch) -> Action:
    """This library's step for training a mask."""
    ones = _ones(backbone)
    scores = PopupScores.create(backbone.layers, ones, 0, "magnitude", backbone.device)
    weights = partial(scores.weights, backbone.weights)
    return _step_on(backbone, batch, scores.tensors, weights)


def sorted_popup_step(backbone: Backbone, batch: Batch) -> Action:
    """Edge-popup as in its authors' code: a full sort of the scores for every layer and step."""
    ones = _ones(backbone)
    scores = PopupScores.create(backbone.layers, ones, 0, "magnitude").tensors

    def weights() -> dict[str, Tensor]:
        masked = {}
        for layer, score, count in zip(backbone.layers, scores, ones, strict=True):
            ranked = score.abs()
            mask = torch.zeros(layer.numel)
            mask[ranked.detach().flatten().sort().indices[layer.numel - count :]] = 1
            # Straight-through: the gradient goes to the score, as if nothing were masked.
            straight = mask.view(layer.shape) - ranked.detach() + ranked
            masked[layer.name] = backbone.weights[layer.name] * straight
        return masked

    return _step_on(backbone, batch, scores, weights)


def minima(
    actions: Sequence[Action], seconds: float = 3.0, least: int = 5
) -> tuple[list[float], int]:
    """The shortest time in ms of each action, and the number of calls of each.

    - seconds: for how long all actions together take turns
    - least: the least number of blocks of `BLOCK` calls; the first call is not counted
    """
    for action in actions:
        action()
    # Actions take turns, in short blocks of consecutive calls like in a training loop. The minimum
    # is used, because on a shared machine noise only adds time.
    best = [float("inf")] * len(actions)
    rounds, started = 0, time.perf_counter()
    while rounds < least or time.perf_counter() - started < seconds:
        for place, action in enumerate(actions):
            best[place] = min(best[place], *repeat(action, number=1, repeat=BLOCK))
        rounds += 1
    return [1e3 * time_taken for time_taken in best], rounds * BLOCK


def _figure(
    name: str, value: float, reference: float, n: int, meaning: str = COST, unit: str = "ms"
) -> Record:
    """A measurement as plain values with four digits. n: the number of repeats."""
    ratio = value / reference if meaning == COST else reference / value
    numbers = {"value": value, "reference": reference, "ratio": ratio}
    how = {"threads": torch.get_num_threads(), "device": "cpu", "n": n}
    return {"name": name, "unit": unit, **rounded(numbers), "meaning": meaning, **how}


def rounded(record: Record) -> Record:
    """The record with floats rounded to four digits."""
    return {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in record.items()}


def _step_on(
    backbone: Backbone, batch: Batch, parameters: list[Tensor], weights: Weights
) -> Action:
    """A training step of parameters, through the frozen network with weights made from them."""
    phase, (inputs, targets) = TrainingPhase.begin(backbone), batch

    def loss() -> Tensor:
        logits = backbone.forward(weights(), inputs, phase.statistics, phase.mode)
        return F.cross_entropy(logits, targets)

    return _step(parameters, loss)


def _step(parameters: Iterable[Tensor], loss: Callable[[], Tensor]) -> Action:
    optimizer = torch.optim.Adam(list(parameters), lr=LR, fused=True)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return run


def _alphas(bank: MaskBank) -> list[Tensor]:
    return [alpha.requires_grad_(True) for alpha in equal_alphas(bank)]


def _lenet() -> Backbone:
    return create_backbone("lenet_300_100", 10, seed=0)


def _learner(backbone: Backbone, masks: int, recipe: Recipe) -> ImpressLearner:
    bank = random_bank(backbone.layers, masks)
    return ImpressLearner(backbone, bank=bank, task_recipe=recipe, progress=False)


def _ones(backbone: Backbone) -> tuple[int, ...]:
    return tuple(ones_per_layer(backbone.layers, 0.9, "erdos_renyi"))


def random_batch(size: int = BATCH, shape: Sequence[int] = (784,)) -> Batch:
    """Random inputs and labels."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn((size, *shape), generator=generator)
    return inputs, torch.randint(0, 10, (size,), generator=generator)


def _mean_seconds(action: Action) -> float:
    action()
    return timeit(action, number=SAMPLED_STEPS) / SAMPLED_STEPS
