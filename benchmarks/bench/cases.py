"""What `python -m benchmarks speed` measures: steps, whole epochs and tasks, memory, compile time.

Each figure stands beside its reference in the same run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os import environ

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.bench.measuring import (
    SPEEDUP,
    Action,
    Record,
    figure,
    minima,
    seconds_of,
)
from benchmarks.bench.steps import (
    coefficient_step,
    dense_step,
    loop_step,
    plain_step,
    popup_step,
    sorted_popup_step,
)
from impresslearn.checks import check_choice
from impresslearn.coefficients.masks import one_hot_coefficients
from impresslearn.data import Examples
from impresslearn.errors import ImpressLearnError
from impresslearn.inference import OBJECTIVES, Mixture
from impresslearn.inference.superposition import Superposition
from impresslearn.kernels import implementation, pack, reference
from impresslearn.learner import ImpressLearner
from impresslearn.masks import add_random_masks, random_bank
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone, create_backbone
from impresslearn.training.loop import Recipe
from impresslearn.training.progress import Progress, silent

MASKS = 100
IMAGES, BATCH = 60_000, 128
SAMPLED_STEPS = 40

_COMPILE = """
import torch, numba, time
started = time.perf_counter()
from impresslearn.kernels import cpu, pack
weight = torch.ones(1, 16)
bits = pack(torch.ones(1, 1, 16, dtype=torch.bool))
cpu.mix(bits, torch.ones(1), weight)
cpu.mask_sums(bits, weight, weight, False)
print(time.perf_counter() - started)
"""
_PEAK = """
import resource, sys, torch
torch.set_num_threads(1)
import impresslearn as il
from benchmarks.bench.steps import coefficient_step
backbone = il.create_backbone("lenet_300_100", 10)
masks = int(sys.argv[1])
inputs, targets = torch.randn(128, 784), torch.randint(0, 10, (128,))
small = coefficient_step(backbone, il.random_bank(backbone.layers, 1), inputs, targets)
for _ in range(20):
    small()
bank = il.random_bank(backbone.layers, masks)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step = coefficient_step(backbone, bank, inputs, targets)
for _ in range(20):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def mix_steps() -> Iterator[Record]:
    """A coefficient step against a plain training step, at N = 10 and 100."""
    backbone, batch = _lenet(), _batch()
    for masks in (10, MASKS):
        ours = coefficient_step(backbone, random_bank(backbone.layers, masks), *batch)
        (value, plain), n = minima([ours, plain_step(backbone, *batch)])
        yield figure(f"mix_step_ratio_{masks}", value, plain, n)


def mix_references() -> Iterator[Record]:
    """A coefficient step at N = 100 against the loop over float masks and the stacked product."""
    backbone, batch = _lenet(), _batch()
    bank = random_bank(backbone.layers, MASKS)
    steps = [make(backbone, bank, *batch) for make in (coefficient_step, loop_step, dense_step)]
    (value, loop, dense), n = minima(steps, seconds=6)
    yield figure("mix_vs_loop", value, loop, n, SPEEDUP)
    yield figure("mix_vs_dense", value, dense, n, SPEEDUP)


def popup_steps() -> Iterator[Record]:
    """An edge-popup step against a plain training step, and against edge-popup with a sort."""
    backbone, batch = _lenet(), _batch()
    steps = [make(backbone, *batch) for make in (popup_step, plain_step, sorted_popup_step)]
    (value, plain, sorting), n = minima(steps)
    yield figure("popup_step_ratio", value, plain, n)
    yield figure("popup_vs_sort", value, sorting, n, SPEEDUP)


def kernel_threads() -> Iterator[Record]:
    """Both kernels at N = 100 on two threads against one."""
    backbone = _lenet()
    bank = random_bank(backbone.layers, MASKS)
    chosen = implementation(torch.device("cpu"))
    weight = backbone.weights[backbone.layers[0].name]
    alpha, grad, bits = torch.full((MASKS,), 0.01), torch.randn(weight.shape), bank.bits(0)

    def with_threads(count: int) -> None:
        torch.set_num_threads(count)
        chosen.mix(bits, alpha, weight)
        chosen.mask_sums(bits, grad, weight, False)

    before = torch.get_num_threads()
    (two, one), n = minima([partial(with_threads, 2), partial(with_threads, 1)])
    torch.set_num_threads(before)
    yield figure("kernels_two_threads", two, one, n, SPEEDUP)


def inference() -> Iterator[Record]:
    """One gradient over 100 superposed masks against one training step."""
    backbone, (inputs, targets) = _lenet(), _batch()
    bank = random_bank(backbone.layers, MASKS)
    masks = [Mixture(one_hot_coefficients(bank.layers, i, MASKS).alpha) for i in range(MASKS)]
    superposition = Superposition(backbone, bank, masks)

    def gradient() -> None:
        shares = superposition.uniform().requires_grad_(True)
        logits = backbone.forward(superposition.weights(shares), inputs)
        torch.autograd.grad(OBJECTIVES["information"](logits), shares)

    (value, plain), n = minima([gradient, plain_step(backbone, inputs, targets)])
    yield figure("inference_gradient_ratio", value, plain, n)


def epochs() -> Iterator[Record]:
    """One epoch of 60,000 images: coefficients at N = 100, and edge-popup, against the field's way.

    Ours runs whole, through the learner's own loop; the reference's loader and step are timed on 40
    batches and scaled to the epoch.
    """
    backbone = _lenet()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, IMAGES)
    inputs = torch.from_numpy(images).unsqueeze(1).float().div_(255).sub_(0.1307).div_(0.3081)
    batch = inputs[:BATCH], torch.from_numpy(labels[:BATCH])
    batches = iter(DataLoader(_TransformedImages(images, labels), batch_size=BATCH, shuffle=True))
    loading = _mean_seconds(lambda: next(batches))
    bank, once = random_bank(backbone.layers, MASKS), Recipe(epochs=1, batch_size=BATCH)
    ours = ImpressLearner(backbone, bank=bank, task_recipe=once, progress=False)
    popup = Recipe(lr=0.03, epochs=1, batch_size=BATCH)
    ours_popup = ImpressLearner(backbone, basis_recipe=popup, progress=False)
    for name, learn, their_step in (
        ("coefficient_epoch", ours.learn_task, loop_step(backbone, bank, *batch)),
        ("popup_epoch", ours_popup.learn_basis, sorted_popup_step(backbone, *batch)),
    ):
        theirs = (loading + _mean_seconds(their_step)) * -(-IMAGES // BATCH)
        value = seconds_of(partial(learn, "epoch", Examples(inputs, labels)))
        yield figure(name, value, theirs, 1, SPEEDUP, "s")


def tasks() -> Iterator[Record]:
    """A task from few labels; cost linear in N; the 2,000th task against the second."""
    backbone = _lenet()
    learner = ImpressLearner(backbone, bank=random_bank(backbone.layers, 10), progress=False)
    few = _batch(200)
    times = [seconds_of(partial(learner.learn_task, f"task {i}", few)) for i in range(5)]
    yield figure("few_labels_task", min(times), None, 5, unit="s")
    steps = [
        coefficient_step(backbone, add_random_masks(MaskBank(backbone.layers), masks), *_batch())
        for masks in (20, 40, 220)
    ]
    (at_20, at_40, at_220), n = minima(steps)
    # 180 more masks against nine times 20 more: 1 is exactly linear.
    yield figure("linear_in_masks", at_220 - at_40, 9 * (at_40 - at_20), n)
    yield _flat_cost(backbone)


def _flat_cost(backbone: Backbone, tasks: int = 2000) -> Record:
    """Learning a task after 2,000 others against learning one after none: medians of 100 each.

    Two learners take turns, so that both meet the same noise.
    """
    data, recipe = _batch(64), Recipe(epochs=1, batch_size=64)
    old, fresh = (
        ImpressLearner(
            backbone, bank=random_bank(backbone.layers, 10), task_recipe=recipe, progress=False
        )
        for _ in range(2)
    )
    for number in range(tasks):
        old.learn_task(f"task {number}", data)
    pairs = [
        [seconds_of(partial(each.learn_task, f"new {i}", data)) for each in (old, fresh)]
        for i in range(100)
    ]
    late, early = 1e3 * np.median(np.array(pairs), axis=0)
    return figure("task_2000_vs_task_2", float(late), float(early), len(pairs))


def resnet_steps() -> Iterator[Record]:
    """ResNet-18 of width 48, N = 10, batch 64: a coefficient step against a plain one."""
    backbone = create_backbone("resnet18", 10, seed=0)
    batch = _batch(64, (3, 32, 32))
    ours = coefficient_step(backbone, random_bank(backbone.layers, 10), *batch)
    (value, plain), n = minima([ours, plain_step(backbone, *batch)], seconds=20, least=3)
    yield figure("resnet18_step_ratio", value, plain, n)


def memory() -> Iterator[Record]:
    """The bank's bytes against one bit a weight, and what a step adds to the peak at N = 1,000."""
    backbone = _lenet()
    bank = random_bank(backbone.layers, MASKS)
    yield figure(
        "bank_bytes", float(bank.nbytes), MASKS * backbone.num_maskable / 8, 1, unit="bytes"
    )
    for masks in (10, 1000):
        growth = max(0.0, _printed_by(_PEAK, str(masks)))
        yield figure(f"peak_growth_{masks}_masks", growth, None, 1, unit="MiB")


def compiling() -> Iterator[Record]:
    """Seconds until both kernels have run for few and many masks: without a cache, and with one."""
    with tempfile.TemporaryDirectory() as cache:
        first, *later = (_printed_by(_COMPILE, NUMBA_CACHE_DIR=cache) for _ in range(4))
    yield figure("first_use", first, None, 1, unit="s")
    yield figure("later_use", min(later), None, 3, unit="s")


CASES: dict[str, Callable[[], Iterator[Record]]] = {
    "mix": mix_steps,
    "references": mix_references,
    "popup": popup_steps,
    "threads": kernel_threads,
    "inference": inference,
    "epochs": epochs,
    "tasks": tasks,
    "resnet": resnet_steps,
    "memory": memory,
    "compile": compiling,
}
"""What `run_bench(only=...)` may be given."""


def run_bench(
    only: str | None = None, threads: int = 1, progress: Progress = silent
) -> Iterator[Record]:
    """Yields records as they are measured; nothing before the kernels match their reference.

    only: one of `CASES`; threads: torch's and the kernels' own, restored afterwards. Raises
    InputError for an unknown case and ImpressLearnError where a kernel is wrong.
    """
    if only is not None:
        check_choice("the measurement", only, CASES)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check_kernels()
        names = list(CASES) if only is None else [only]
        with progress.track(len(names)) as advance:
            for name in names:
                yield from CASES[name]()
                advance()
    finally:
        torch.set_num_threads(before)


def check_kernels() -> None:
    """Raises ImpressLearnError unless the kernels agree with the reference, gradients included."""
    chosen = implementation(torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for masks, units, fan_in in ((1, 1, 1), (7, 13, 37), (33, 30, 784)):
        bits = pack(torch.rand((masks, units, fan_in), generator=generator) < 0.3)
        weight, grad = torch.randn((2, units, fan_in), generator=generator)
        for by_unit in (False, True):
            alpha = torch.randn((masks, units) if by_unit else masks, generator=generator)
            (ours, our_sums), (truth, true_sums) = (
                (each.mix(bits, alpha, weight), each.mask_sums(bits, grad, weight, by_unit))
                for each in (chosen, reference)
            )
            if not (_close(ours, truth) and _close(our_sums, true_sums)):
                raise ImpressLearnError("the kernels do not match their reference")


def _close(ours: torch.Tensor, truth: torch.Tensor) -> bool:
    return torch.allclose(ours, truth, rtol=1e-4, atol=1e-4)


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


def _lenet() -> Backbone:
    return create_backbone("lenet_300_100", 10, seed=0)


def _batch(size: int = BATCH, shape: Sequence[int] = (784,)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn((size, *shape), generator=generator)
    return inputs, torch.randint(0, 10, (size,), generator=generator)


def _printed_by(code: str, *arguments: str, **environment: str) -> float:
    """The number that a Python program prints last, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ImpressLearnError(f"a measuring process failed: {done.stderr.strip()[-200:]}")
    return float(done.stdout.strip().splitlines()[-1])


def _mean_seconds(action: Action) -> float:
    action()
    return sum(seconds_of(action) for _ in range(SAMPLED_STEPS)) / SAMPLED_STEPS
