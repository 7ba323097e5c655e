"""Writes data/format-1*: stores of format 1 and what they must give for ever.

Run once, when format 1 was settled: `python tests/store/make_format_1.py`, with the folder `tests`
on PYTHONPATH. Never run it again for a later format: give that one files of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import torch

import impresslearn as il
from impresslearn.coefficients.quantisation import PRECISIONS
from toys import FEATURES, blobs, pictures

DATA = Path(__file__).parent / "data"
PLAIN, NORMS = DATA / "format-1.impress", DATA / "format-1-norms.impress"
EXPECTED = DATA / "format-1.json"
HASTY = il.Recipe(lr=0.03, epochs=0, min_steps=5, batch_size=32)
FLAT = torch.linspace(-2, 2, 3 * FEATURES).reshape(3, FEATURES)
IMAGES = torch.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


def make() -> None:
    DATA.mkdir(exist_ok=True)
    quiet = {"progress": False, "basis_recipe": HASTY, "task_recipe": HASTY, "sparsity": 0.7}
    backbone = il.create_backbone(
        "lenet_300_100", 3, init="kaiming_normal", in_features=FEATURES, widths=[24, 12]
    )
    learner = il.ImpressLearner(backbone, **quiet)
    learner.learn_basis("basis", blobs(0))
    inputs, labels = blobs(1)
    learner.learn_basis("words ñ", (inputs, [("cat", "dog", "Ünter")[label] for label in labels]))
    learner.add_random_masks(2, seed=5).save(PLAIN, overwrite=True)
    for precision, granularity in itertools.product(PRECISIONS, ("layer", "unit")):
        scales = {"output_scale": granularity == "unit", "input_scale": precision == "float16"}
        how = {"precision": precision, "granularity": granularity, **scales}
        with il.open_store(PLAIN, **how, progress=False) as bound:
            bound.learn_task(f"{precision} {granularity}", (inputs, 10 * labels + 7))
    small = il.create_backbone("resnet18", 3, init="kaiming_normal", norm="per_task", width=2)
    learner = il.ImpressLearner(small, **quiet).learn_basis("photos", pictures(0))
    learner.learn_task("more photos", pictures(1)).save(NORMS, weights="seed", overwrite=True)
    EXPECTED.write_text(json.dumps(observed(), indent=1, ensure_ascii=False) + "\n")


def observed() -> dict[str, dict]:
    """Everything that the present code finds in the stores."""
    found: dict[str, dict] = {}
    for path, inputs in ((PLAIN, FLAT), (NORMS, IMAGES)):
        learner = il.load(path, progress=False)
        masks = [learner.bank_.mask(name) for name in learner.bank_.names]
        found[path.name] = {
            "fingerprint": learner.backbone.fingerprint(),
            "masks": {
                name: _hash(np.packbits(np.concatenate([m.numpy().ravel() for m in mask.values()])))
                for name, mask in zip(learner.bank_.names, masks, strict=True)
            },
            "tasks": {name: _task(learner, name, inputs) for name in learner.tasks_},
        }
    return found


def _task(learner: il.ImpressLearner, name: str, inputs: torch.Tensor) -> dict:
    kept, info = learner.tasks_.learned(name), learner.tasks_[name]
    statistics = [value.numpy() for value in (kept.statistics or {}).values()]
    alphas = [tensor.numpy() for tensor in learner._state.coefficients(kept).tensors()]
    return {
        "role": info.role,
        "classes": list(info.classes),
        "num_masks": info.num_masks,
        "bytes": dict(info.breakdown),
        "recipe": info.history["recipe"],
        "metrics": info.history["metrics"],
        "coefficients": _hash(*alphas),
        "statistics": _hash(*statistics),
        "profile": [kept.profile.own, kept.profile.foreign],
        "logits": [
            [float(f"{x:.6g}") for x in row] for row in learner.logits(inputs, name).tolist()
        ],
    }


def _hash(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        little = array.astype(array.dtype.newbyteorder("<"))
        digest.update(np.ascontiguousarray(little).tobytes())
    return digest.hexdigest()[:32]


if __name__ == "__main__":
    make()
