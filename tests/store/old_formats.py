"""Made data/format-*: stores of formats 1 and 2, and what they must give for ever.

Each was run once, when its format was settled, and never again: a later format gets files of its
own. `observed` is what the present code finds in a file.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import impresslearn as il
from impresslearn.coefficients.quantisation import PRECISIONS
from toys import FEATURES, blobs, pictures

DATA = Path(__file__).parent / "data"
PLAIN, NORMS = DATA / "format-1.impress", DATA / "format-1-norms.impress"
PREPROCESSED = DATA / "format-2.impress"
HASTY = il.Recipe(lr=0.03, epochs=0, min_steps=5, batch_size=32)
QUIET = {"progress": False, "basis_recipe": HASTY, "task_recipe": HASTY, "sparsity": 0.7}
FLAT = torch.linspace(-2, 2, 3 * FEATURES).reshape(3, FEATURES)
IMAGES = torch.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
PIXELS = (np.arange(48 * 16).reshape(48, 4, 4) * 37 % 256).astype(np.uint8)
INPUTS: dict[Path, Any] = {PLAIN: FLAT, NORMS: IMAGES, PREPROCESSED: PIXELS}


def make_format_1() -> None:
    backbone = il.create_backbone(
        "lenet_300_100", 3, init="kaiming_normal", in_features=FEATURES, widths=[24, 12]
    )
    learner = il.ImpressLearner(backbone, **QUIET)
    learner.learn_basis("basis", blobs(0))
    inputs, labels = blobs(1)
    learner.learn_basis("words ñ", (inputs, [("cat", "dog", "Ünter")[label] for label in labels]))
    learner.add_random_masks(2, seed=5).save(PLAIN)
    for precision, granularity in itertools.product(PRECISIONS, ("layer", "unit")):
        scales = {"output_scale": granularity == "unit", "input_scale": precision == "float16"}
        how = {"precision": precision, "granularity": granularity, **scales}
        with il.open_store(PLAIN, **how, progress=False) as bound:
            bound.learn_task(f"{precision} {granularity}", (inputs, 10 * labels + 7))
    small = il.create_backbone("resnet18", 3, init="kaiming_normal", norm="per_task", width=2)
    learner = il.ImpressLearner(small, **QUIET).learn_basis("photos", pictures(0))
    learner.learn_task("more photos", pictures(1)).save(NORMS, weights="seed")
    found = {path.name: observed(path) for path in (PLAIN, NORMS)}
    (DATA / "format-1.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def make_format_2() -> None:
    backbone = il.create_backbone(
        "lenet_300_100", 3, init="kaiming_normal", in_features=16, widths=[24, 12]
    )
    how, labels = il.Preprocessing.standardising(PIXELS, shape=(1, 4, 4)), ["cat", "dog", "Ünter"]
    learner = il.ImpressLearner(backbone, preprocessing=how, precision="coded", **QUIET)
    learner.learn_basis("basis", (PIXELS, labels * 16))
    learner.learn_task("new", (PIXELS[::-1].copy(), labels * 16))
    learner.save(PREPROCESSED, weights="seed")
    text = json.dumps(answers(PREPROCESSED), indent=1, ensure_ascii=False)
    (DATA / "format-2.json").write_text(text + "\n")


def observed(path: Path) -> dict:
    """Everything that the present code finds in a store."""
    learner = il.load(path, progress=False)
    masks = {name: learner.bank_.mask(name).values() for name in learner.bank_.names}
    return {
        "fingerprint": learner.backbone.fingerprint(),
        "masks": {
            name: _hash(np.packbits(np.concatenate([m.numpy().ravel() for m in mask])))
            for name, mask in masks.items()
        },
        "tasks": {name: _task(learner, name, INPUTS[path]) for name in learner.tasks_},
    }


def answers(path: Path) -> dict:
    """What the present code answers with a store."""
    learner, inputs = il.load(path, progress=False), INPUTS[path]
    return {
        "fingerprint": learner.backbone.fingerprint(),
        "preprocessing": learner.preprocessing.settings(),
        "bytes": {name: info.bytes for name, info in learner.tasks_.items()},
        "labels": {name: learner.predict(inputs, name).tolist() for name in learner.tasks_},
        "logits": {name: _rounded(learner.logits(inputs, name)[:4]) for name in learner.tasks_},
    }


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
        "logits": _rounded(learner.logits(inputs, name)),
    }


def _rounded(logits: torch.Tensor) -> list[list[float]]:
    return [[float(f"{x:.6g}") for x in row] for row in logits.tolist()]


def _hash(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        little = array.astype(array.dtype.newbyteorder("<"))
        digest.update(np.ascontiguousarray(little).tobytes())
    return digest.hexdigest()[:32]
