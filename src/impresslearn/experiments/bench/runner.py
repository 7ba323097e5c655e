"""`run_bench`: the correctness gate, then every case, in one process with fixed threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from impresslearn.coefficients.mixing import one_hot_coefficients
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.experiments.bench.epochs import (
    epoch_records,
    few_labels_record,
    flat_cost_record,
    linear_record,
)
from impresslearn.experiments.bench.processes import compile_records, memory_records
from impresslearn.experiments.bench.steps import (
    coefficient_step,
    dense_step,
    loop_step,
    plain_step,
    popup_step,
    sorted_popup_step,
)
from impresslearn.experiments.bench.timing import Record, cost, minima, speedup
from impresslearn.inference import OBJECTIVES
from impresslearn.inference.superposition import Superposition
from impresslearn.kernels import implementation, pack, reference
from impresslearn.masks import random_bank
from impresslearn.networks import Backbone, create_backbone
from impresslearn.optimisation.progress import Progress, silent

MASKS = 100


def run_bench(
    only: str | None = None, threads: int = 1, progress: Progress = silent
) -> Iterator[Record]:
    """Yields records as they are measured; nothing before the kernels match their reference.

    only: one of `CASES`; threads: torch's and the kernels' own, restored afterwards. Raises
    InputError for an unknown case and ImpressLearnError where a kernel is wrong.
    """
    if only is not None and only not in CASES:
        raise InputError(f"no measurement named {only!r}; choose from {', '.join(CASES)}")
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
        for shape in ((masks,), (masks, units)):
            alpha = torch.randn(shape, generator=generator)
            by_unit = len(shape) == 2
            pairs = (
                (chosen.mix(bits, alpha, weight), reference.mix(bits, alpha, weight)),
                (
                    chosen.mask_sums(bits, grad, weight, by_unit),
                    reference.mask_sums(bits, grad, weight, by_unit),
                ),
            )
            for ours, truth in pairs:
                if not torch.allclose(ours, truth, rtol=1e-4, atol=1e-4):
                    raise ImpressLearnError("the kernels do not match their reference")


def _lenet() -> Backbone:
    return create_backbone("lenet_300_100", 10, seed=0)


def _batch(size: int = 128, shape: Sequence[int] = (784,)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn((size, *shape), generator=generator)
    return inputs, torch.randint(0, 10, (size,), generator=generator)


def mix_steps() -> Iterator[Record]:
    """A coefficient step against a plain training step, at N = 10 and 100."""
    backbone, batch = _lenet(), _batch()
    for masks in (10, MASKS):
        ours = coefficient_step(backbone, random_bank(backbone.layers, masks), *batch)
        (value, plain), n = minima([ours, plain_step(backbone, *batch)])
        yield cost(f"mix_step_ratio_{masks}", 1e3 * value, 1e3 * plain, n)


def mix_references() -> Iterator[Record]:
    """A coefficient step at N = 100 against the loop over float masks and the stacked product."""
    backbone, batch = _lenet(), _batch()
    bank = random_bank(backbone.layers, MASKS)
    steps = [make(backbone, bank, *batch) for make in (coefficient_step, loop_step, dense_step)]
    (value, loop, dense), n = minima(steps, seconds=6)
    yield speedup("mix_vs_loop", 1e3 * value, 1e3 * loop, n)
    yield speedup("mix_vs_dense", 1e3 * value, 1e3 * dense, n)


def popup_steps() -> Iterator[Record]:
    """An edge-popup step against a plain training step, and against edge-popup with a sort."""
    backbone, batch = _lenet(), _batch()
    steps = [make(backbone, *batch) for make in (popup_step, plain_step, sorted_popup_step)]
    (value, plain, sorting), n = minima(steps)
    yield cost("popup_step_ratio", 1e3 * value, 1e3 * plain, n)
    yield speedup("popup_vs_sort", 1e3 * value, 1e3 * sorting, n)


def kernel_threads() -> Iterator[Record]:
    """Both kernels at N = 100 on two threads against one."""
    backbone = _lenet()
    bank = random_bank(backbone.layers, MASKS)
    chosen = implementation(torch.device("cpu"))
    weight = backbone.weights[backbone.layers[0].name]
    alpha, grad, bits = torch.full((MASKS,), 0.01), torch.randn(weight.shape), bank.bits(0)

    def both() -> None:
        chosen.mix(bits, alpha, weight)
        chosen.mask_sums(bits, grad, weight, False)

    def with_threads(count: int) -> None:
        torch.set_num_threads(count)
        both()

    before = torch.get_num_threads()
    (two, one), n = minima([lambda: with_threads(2), lambda: with_threads(1)])
    torch.set_num_threads(before)
    yield speedup("kernels_two_threads", 1e3 * two, 1e3 * one, n)


def resnet_steps() -> Iterator[Record]:
    """ResNet-18 of width 48, N = 10, batch 64: a coefficient step against a plain one."""
    backbone = create_backbone("resnet18", 10, seed=0)
    batch = _batch(64, (3, 32, 32))
    ours = coefficient_step(backbone, random_bank(backbone.layers, 10), *batch)
    (value, plain), n = minima([ours, plain_step(backbone, *batch)], seconds=20, least=3)
    yield cost("resnet18_step_ratio", 1e3 * value, 1e3 * plain, n)


def inference() -> Iterator[Record]:
    """One gradient over 100 superposed masks against one training step."""
    backbone, (inputs, targets) = _lenet(), _batch()
    bank = random_bank(backbone.layers, MASKS)
    masks = [one_hot_coefficients(bank.layers, i, MASKS) for i in range(MASKS)]
    superposition = Superposition(backbone, bank, masks)

    def gradient() -> None:
        shares = superposition.uniform().requires_grad_(True)
        logits = backbone.forward(superposition.weights(shares), inputs)
        torch.autograd.grad(OBJECTIVES["information"](logits), shares)

    (value, plain), n = minima([gradient, plain_step(backbone, inputs, targets)])
    yield cost("inference_gradient_ratio", 1e3 * value, 1e3 * plain, n)


def epochs() -> Iterator[Record]:
    """Whole epochs over 60,000 images."""
    yield from epoch_records(_lenet())


def tasks() -> Iterator[Record]:
    """A task from few labels; the 2,000th task against the second; cost linear in N."""
    yield few_labels_record(_lenet())
    yield linear_record(_lenet(), *_batch())
    yield flat_cost_record(_lenet())


def memory() -> Iterator[Record]:
    """Bytes of the bank, and the peak memory of a step."""
    yield from memory_records(_lenet())


def compiling() -> Iterator[Record]:
    """First use of the kernels, and later processes."""
    yield from compile_records()


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
