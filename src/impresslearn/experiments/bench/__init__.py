"""Speed and memory, each figure beside its reference in the same run; see `run_bench`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.experiments.bench.cases import CASES
from impresslearn.experiments.bench.measuring import Record
from impresslearn.kernels import implementation, pack, reference
from impresslearn.optimisation.progress import Progress, silent


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
