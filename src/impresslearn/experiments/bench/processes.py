"""Figures that need a process of their own: compile time, and peak memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from os import environ

from impresslearn.errors import ImpressLearnError
from impresslearn.experiments.bench.timing import Record, cost, single
from impresslearn.masks import random_bank
from impresslearn.networks import Backbone

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
from impresslearn.experiments.bench.steps import coefficient_step
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


def compile_records() -> list[Record]:
    """Seconds until both kernels have run: first without a cache."""
    with tempfile.TemporaryDirectory() as cache:
        setting = {"NUMBA_CACHE_DIR": cache}
        first = float(_run(_COMPILE, setting))
        later = min(float(_run(_COMPILE, setting)) for _ in range(3))
    return [single("first_use", first, "s", 1), single("later_use", later, "s", 3)]


def memory_records(backbone: Backbone) -> list[Record]:
    """The bank's bytes against one bit a weight, and what a step adds to the peak at N=1,000."""
    bank = random_bank(backbone.layers, 100)
    ideal = len(bank) * backbone.num_maskable / 8
    growth = [max(0.0, float(_run(_PEAK, {}, str(masks)))) for masks in (10, 1000)]
    return [
        cost("bank_bytes", float(bank.nbytes), ideal, 1, "bytes"),
        single("peak_growth_10_masks", growth[0], "MiB", 1),
        single("peak_growth_1000_masks", growth[1], "MiB", 1),
    ]


def _run(code: str, settings: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ImpressLearnError(f"a measuring process failed: {done.stderr.strip()[-200:]}")
    return done.stdout.strip().splitlines()[-1]
