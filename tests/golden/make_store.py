"""Writes store.impress and store.json: `python tests/golden/make_store.py`, from the root.

Run it only for a new format of stores, and say so in CHANGELOG.md.
"""

import json
from pathlib import Path

import torch

import impresslearn as il

HERE = Path(__file__).parent
INPUTS = torch.linspace(-1, 1, 4 * 12).reshape(4, 12)
FEW = il.Recipe(lr=0.1, epochs=0, min_steps=40, batch_size=8)


def main() -> None:
    """Two masks, two tasks of which one has two versions, and their logits."""
    labels = torch.arange(12) % 3
    inputs = torch.linspace(-2, 2, 12 * 12).reshape(12, 12).sin() + labels[:, None]
    backbone = il.create_backbone("lenet_300_100", 3, in_features=12, widths=(9, 7), seed=1)
    learner = il.ImpressLearner(
        backbone,
        precision="coded",
        bit_price=0.01,
        basis_recipe=FEW,
        task_recipe=FEW,
        progress=False,
    )
    learner.learn_basis("basis", (inputs, labels)).add_random_masks(1)
    learner.learn_task("task", (inputs, labels)).update_task("task", (inputs, labels))
    learner.save(HERE / "store.impress", overwrite=True)
    logits = {name: learner.logits(INPUTS, name).tolist() for name in learner.tasks_}
    HERE.joinpath("store.json").write_text(json.dumps(logits, indent=1) + "\n")


if __name__ == "__main__":
    main()
