"""Stores of formats 1 and 2, and what the present code finds in them.

The files in data/ and what they must give for ever were made once, by the code that settled each
format (make_format_1.py and make_format_2.py in the commits that added them); a later format gets
files of its own.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

import impresslearn as il
from toys import FEATURES

DATA = Path(__file__).parent / "data"
PLAIN, NORMS = DATA / "format-1.impress", DATA / "format-1-norms.impress"
PREPROCESSED = DATA / "format-2.impress"
FLAT = torch.linspace(-2, 2, 3 * FEATURES).reshape(3, FEATURES)
IMAGES = torch.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
PIXELS = (np.arange(48 * 16).reshape(48, 4, 4) * 37 % 256).astype(np.uint8)
INPUTS: dict[Path, Any] = {PLAIN: FLAT, NORMS: IMAGES, PREPROCESSED: PIXELS}


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
