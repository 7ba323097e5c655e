"""Builds an example store: 15 tasks of turned digits in one file, and inputs to try it on.

    python examples/digits_store.py [--out digits.impress]

Nothing is downloaded. It takes about half a minute; the file holds the network, five masks, and ten
tasks of 311 bytes each. Beside it come digits of one of the tasks, as a file of inputs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import impresslearn as il

TASKS, BASIS = 15, 5


def build(out: Path, seed: int = 0) -> tuple[Path, str]:
    """The store at a path that is free; the file of inputs, and the name of their task."""
    stream = il.streams.rotated_digits(tasks=TASKS, seed=seed)
    backbone = il.create_backbone("lenet_300_100", num_classes=10, in_features=64, seed=seed)
    learner = il.ImpressLearner(backbone, output_scale=True, precision="int5", seed=seed)
    for task in stream[:BASIS]:
        learner.learn_basis(task.name, task.train)
    learner.learn_tasks({task.name: task.train for task in stream[BASIS:]})
    learner.save(out)
    task, inputs = stream[-1], out.with_name(f"{out.stem}-inputs.npy")
    np.save(inputs, task.test.inputs[:20].numpy())
    return inputs, task.name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("digits.impress"))
    out = parser.parse_args().out
    inputs, task = build(out)
    print(f"impresslearn tasks {out}")
    print(f"impresslearn predict {out} {inputs}   # finds {task}")
    print(f"impresslearn predict {out} {inputs} --task {task}")
    print(f"impresslearn serve {out}")


if __name__ == "__main__":
    main()
