"""Whole epochs and whole tasks: what a user waits for."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from impresslearn.data import Examples
from impresslearn.experiments.bench.steps import (
    Step,
    coefficient_step,
    loop_step,
    sorted_popup_step,
)
from impresslearn.experiments.bench.timing import Record, cost, minima, single, speedup
from impresslearn.learner import ImpressLearner
from impresslearn.masks import add_random_masks, random_bank
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.optimisation.loop import Recipe

IMAGES, BATCH = 60_000, 128
SAMPLED_STEPS = 40


class _TransformedImages(Dataset):
    """28x28 uint8 images, converted, normalised and permuted one at a time, as scripts do it."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels
        self.order = torch.randperm(784, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = torch.from_numpy(self.images[index]).unsqueeze(0).float().div(255)
        pixels = pixels.sub(0.1307).div(0.3081)
        return pixels.view(-1)[self.order].view(1, 28, 28), int(self.labels[index])


def epoch_records(backbone: Backbone) -> list[Record]:
    """One epoch of 60,000 images: coefficients at N=100, and edge-popup, against the field's way.

    Ours runs whole, through the learner's own `fit`; the reference's loader and step are timed on
    40 batches and scaled to the epoch.
    """
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, IMAGES)
    inputs = torch.from_numpy(images).unsqueeze(1).float().div_(255).sub_(0.1307).div_(0.3081)
    data = Examples(inputs, labels)
    bank = random_bank(backbone.layers, 100)
    steps = -(-IMAGES // BATCH)
    loading = _loader_seconds(_TransformedImages(images, labels))
    batch, targets = inputs[:BATCH], torch.from_numpy(labels[:BATCH])
    records = []
    for name, reference, run in (
        ("coefficient_epoch", loop_step(backbone, bank, batch, targets), _coefficient_epoch),
        ("popup_epoch", sorted_popup_step(backbone, batch, targets), _popup_epoch),
    ):
        theirs = (loading + _mean_seconds(reference)) * steps
        records.append(speedup(name, run(backbone, bank, data), theirs, 1, "s"))
    return records


def few_labels_record(backbone: Backbone) -> Record:
    """A new task from 200 labelled images at N=10, from the call to the committed coefficients."""
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn((200, 784), generator=rng)
    labels = torch.randint(0, 10, (200,), generator=rng).numpy()
    learner = ImpressLearner(backbone, bank=random_bank(backbone.layers, 10), progress=False)
    best = float("inf")
    for number in range(5):
        begin = time.perf_counter()
        learner.learn_task(f"task {number}", (inputs, labels))
        best = min(best, time.perf_counter() - begin)
    return single("few_labels_task", best, "s", 5)


def flat_cost_record(backbone: Backbone, tasks: int = 2000) -> Record:
    """Learning a task after 2,000 others against learning one after none: medians of 100 each.

    Two learners take turns, so that both meet the same noise.
    """
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn((64, 784), generator=rng)
    labels = torch.randint(0, 10, (64,), generator=rng).numpy()

    def learner() -> ImpressLearner:
        recipe = Recipe(epochs=1, batch_size=64)
        bank = random_bank(backbone.layers, 10)
        return ImpressLearner(backbone, bank=bank, task_recipe=recipe, progress=False)

    def seconds(who: ImpressLearner, name: str) -> float:
        begin = time.perf_counter()
        who.learn_task(name, (inputs, labels))
        return 1e3 * (time.perf_counter() - begin)

    old, fresh = learner(), learner()
    for number in range(tasks):
        old.learn_task(f"task {number}", (inputs, labels))
    pairs = [(seconds(old, f"late {i}"), seconds(fresh, f"early {i}")) for i in range(100)]
    late, early = np.median(np.array(pairs), axis=0)
    return cost("task_2000_vs_task_2", float(late), float(early), len(pairs))


def linear_record(backbone: Backbone, inputs: Tensor, targets: Tensor) -> Record:
    """The cost of 180 more masks against nine times that of 20 more: 1 is exactly linear in N."""
    steps = []
    for masks in (20, 40, 220):
        bank = add_random_masks(MaskBank(backbone.layers), masks)
        steps.append(coefficient_step(backbone, bank, inputs, targets))
    (at_20, at_40, at_220), rounds = minima(steps)
    return cost("linear_in_masks", 1e3 * (at_220 - at_40), 9e3 * (at_40 - at_20), rounds)


def _coefficient_epoch(backbone: Backbone, bank: MaskBank, data: Examples) -> float:
    learner = ImpressLearner(
        backbone, bank=bank, task_recipe=Recipe(epochs=1, batch_size=BATCH), progress=False
    )
    begin = time.perf_counter()
    learner.learn_task("epoch", data)
    return time.perf_counter() - begin


def _popup_epoch(backbone: Backbone, bank: MaskBank, data: Examples) -> float:
    learner = ImpressLearner(
        backbone, basis_recipe=Recipe(lr=0.03, epochs=1, batch_size=BATCH), progress=False
    )
    begin = time.perf_counter()
    learner.learn_basis("epoch", data)
    return time.perf_counter() - begin


def _loader_seconds(dataset: Dataset) -> float:
    """Seconds a batch of a single-process loader."""
    batches = iter(DataLoader(dataset, batch_size=BATCH, shuffle=True))
    next(batches)
    begin = time.perf_counter()
    for _ in range(SAMPLED_STEPS):
        next(batches)
    return (time.perf_counter() - begin) / SAMPLED_STEPS


def _mean_seconds(step: Step) -> float:
    step()
    begin = time.perf_counter()
    for _ in range(SAMPLED_STEPS):
        step()
    return (time.perf_counter() - begin) / SAMPLED_STEPS
