"""Writes data/format-2*: a store of format 2, with a preprocessing, and what it must give for ever.

Run once, when format 2 was settled: `python tests/store/make_format_2.py`, with the folder `tests`
on PYTHONPATH.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import impresslearn as il

DATA = Path(__file__).parent / "data"
STORE, EXPECTED = DATA / "format-2.impress", DATA / "format-2.json"
HASTY = il.Recipe(lr=0.03, epochs=0, min_steps=5, batch_size=32)
PIXELS = (np.arange(48 * 16).reshape(48, 4, 4) * 37 % 256).astype(np.uint8)
LABELS = [("cat", "dog", "Ünter")[number % 3] for number in range(48)]


def make() -> None:
    backbone = il.create_backbone(
        "lenet_300_100", 3, init="kaiming_normal", in_features=16, widths=[24, 12]
    )
    how = il.Preprocessing.standardising(PIXELS, shape=(1, 4, 4))
    quiet = {"progress": False, "basis_recipe": HASTY, "task_recipe": HASTY, "sparsity": 0.7}
    learner = il.ImpressLearner(backbone, preprocessing=how, precision="coded", **quiet)
    learner.learn_basis("basis", (PIXELS, LABELS)).learn_task("new", (PIXELS[::-1].copy(), LABELS))
    learner.save(STORE, weights="seed", overwrite=True)
    EXPECTED.write_text(json.dumps(observed(), indent=1, ensure_ascii=False) + "\n")


def observed() -> dict:
    """What the present code finds in the store."""
    learner = il.load(STORE, progress=False)
    return {
        "fingerprint": learner.backbone.fingerprint(),
        "preprocessing": learner.preprocessing.settings(),
        "bytes": {name: info.bytes for name, info in learner.tasks_.items()},
        "labels": {name: learner.predict(PIXELS, name).tolist() for name in learner.tasks_},
        "logits": {
            name: [
                [float(f"{x:.5g}") for x in row]
                for row in learner.logits(PIXELS, name)[:4].tolist()
            ]
            for name in learner.tasks_
        },
    }


if __name__ == "__main__":
    make()
