"""Measures speed on a GPU: kernels compared with a memory copy, training steps, tasks per minute.

`python -m benchmarks.gpu OUT.json` writes each figure as soon as it is measured.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks import speed
from benchmarks.speed import BATCH, Record
from impresslearn.errors import NotLearnedWarning
from impresslearn.kernels import implementation, mix, row_bytes
from impresslearn.learner import ImpressLearner
from impresslearn.masks import random_bank
from impresslearn.networks import create_backbone
from impresslearn.training.loop import Recipe

NETWORKS = {"LeNet": "lenet_300_100", "ResNet-18": "resnet18", "ResNet-50": "resnet50"}
COUNTS = (10, 100, 1000)
REPEATS = 30


def milliseconds(action: Callable[[], object]) -> float:
    """The median time of an action on the device."""
    for _ in range(3):
        action()
    times = []
    for _ in range(REPEATS):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        action()
        ended.record()
        torch.cuda.synchronize()
        times.append(begun.elapsed_time(ended))
    return statistics.median(times)


def copies() -> Iterator[Record]:
    """A copy from device to device, and the launch of a kernel with almost no work."""
    source = torch.empty(2**29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    took = milliseconds(lambda: target.copy_(source))
    yield {"name": "copy", "ms": took, "GB/s": 2 * source.numel() / took / 1e6}
    yield {"name": "launch", "ms": milliseconds(lambda: source[:1].zero_())}


def kernels() -> Iterator[Record]:
    """`mix` and `mask_sums` over all layers of a network, and the bytes they must read or write."""
    for name, kind in NETWORKS.items():
        backbone = create_backbone(kind, 10, seed=0).to("cuda")
        for count in COUNTS:
            layers, weights = backbone.layers, list(backbone.weights.values())
            bits, alphas = [], []
            for layer in layers:
                shape = (count, layer.units, row_bytes(layer.fan_in))
                bits.append(torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda"))
                alphas.append(torch.rand(count, layer.units, device="cuda"))
            packed, floats = sum(map(torch.numel, bits)), 4 * backbone.num_maskable

            def mixed(bits=bits, alphas=alphas, weights=weights) -> None:
                for layer in zip(bits, alphas, weights, strict=True):
                    mix(*layer)

            def summed(bits=bits, weights=weights) -> None:
                for each, weight in zip(bits, weights, strict=True):
                    implementation(each.device).mask_sums(each, weight, weight, True)

            # Both read the masks once; mix reads and writes weights, mask_sums reads two of them.
            for kernel, action in (("mix", mixed), ("mask_sums", summed)):
                took = milliseconds(action)
                rate = (packed + 2 * floats) / took / 1e6
                yield {"name": kernel, "network": name, "masks": count, "ms": took, "GB/s": rate}


def steps() -> Iterator[Record]:
    """Training steps of coefficients (N = 100) and of edge-popup, compared with plain steps."""
    for name, shape in (("LeNet", (784,)), ("ResNet-18", (3, 32, 32))):
        backbone = create_backbone(NETWORKS[name], 10, seed=0).to("cuda")
        inputs, targets = speed.random_batch(BATCH, shape)
        batch = inputs.cuda(), targets.cuda()
        bank = random_bank(backbone.layers, 100, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        for kind, action in (
            ("plain", speed.plain_step(backbone, batch)),
            ("coefficients", speed.coefficient_step(backbone, bank, batch)),
            ("edge-popup", speed.popup_step(backbone, batch)),
        ):
            took = milliseconds(action)
            record = {"name": f"{kind} step", "network": name, "ms": took}
            yield record | {"MB": torch.cuda.max_memory_allocated() // 10**6}


def tasks() -> Iterator[Record]:
    """Tasks per minute over LeNet with 20 random masks, learned together and one by one."""
    rng = np.random.default_rng(0)
    for images, count, epochs in ((200, 512, 20), (200, 64, 20), (60_000, 8, 1)):
        inputs = rng.standard_normal((images, 784), dtype=np.float32)
        labels = rng.integers(0, 10, images)
        for batched in (True, False):
            backbone = create_backbone("lenet_300_100", 10, seed=0).to("cuda")
            bank = random_bank(backbone.layers, 20, device="cuda")
            recipe = Recipe(epochs=epochs, batch_size=BATCH)
            learner = ImpressLearner(backbone, bank=bank, task_recipe=recipe, progress=False)
            some = count if batched else max(2, count // 16)
            learner.learn_tasks({"first": (inputs, labels)}, batched=batched)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            learner.learn_tasks({f"t{n}": (inputs, labels) for n in range(some)}, batched=batched)
            took = time.perf_counter() - begun
            record = {"name": "learn_tasks", "images": images, "epochs": epochs, "tasks": some}
            yield record | {"batched": batched, "tasks/min": 60 * some / took}


def main() -> None:
    """Measures everything, and writes all figures so far after each new one."""
    properties = torch.cuda.get_device_properties(0)
    record: Record = {"device": properties.name, "torch": torch.__version__}
    record["cuda"] = torch.version.cuda
    rows = record["rows"] = []
    warnings.simplefilter("ignore", NotLearnedWarning)  # labels are random here
    begun = time.perf_counter()
    for measure in (copies, kernels, steps, tasks):
        try:
            for row in measure():
                rows.append(speed.rounded(row))
                print(f"{time.perf_counter() - begun:6.1f} s", rows[-1], flush=True)
                Path(sys.argv[1]).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        except (RuntimeError, ValueError) as error:  # go on with the other figures
            print(f"{measure.__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
