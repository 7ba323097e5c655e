"""From plain settings to streams, networks and banks, each made once a process where possible."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from impresslearn.data import Examples, StreamedExamples
from impresslearn.experiments.jobs import Outcome, Place
from impresslearn.masks import add_random_masks, disjoint_bank
from impresslearn.masks.bank import MaskBank, PackedMask, packed_mask
from impresslearn.masks.codec import decode_mask
from impresslearn.networks import Backbone, create_backbone
from impresslearn.networks.prediction import Statistics
from impresslearn.networks.registry import OLDER_SPEC
from impresslearn.optimisation.loop import Recipe
from impresslearn.streams import Stream, Task, create_stream

ROOTED = ("rotated_mnist", "permuted_mnist", "split_cifar100", "split_imagenet", "from_folder")
DOWNLOADED = ("rotated_mnist", "permuted_mnist", "split_cifar100")

Data = Examples | StreamedExamples


def stream_of(settings: Mapping[str, Any], place: Place) -> Stream:
    """The stream of {"name": …, and its settings}; the place says where data lie.

    settings["folder"] names a folder there.
    """
    return _stream(json.dumps(dict(settings), sort_keys=True), place.data)


def task_of(settings: Mapping[str, Any], place: Place) -> Task:
    """Task number settings["task"] of the stream settings["stream"]."""
    return stream_of(settings["stream"], place)[int(settings["task"])]


def train_and_test(settings: Mapping[str, Any], place: Place) -> tuple[Data, Data]:
    """A task's examples; settings["labels"], if any, says how many to train on.

    They are the first ones, or with settings["balanced"] the first ones of each class in turn.
    """
    text = json.dumps(dict(settings["stream"]), sort_keys=True)
    train, test = _examples(text, int(settings["task"]), place.data)
    labels = settings.get("labels")
    if labels is not None and isinstance(train, Examples):
        chosen = _balanced(train.labels, labels) if settings.get("balanced") else range(int(labels))
        train = train.subset(chosen)
    return train, test


def backbone_of(settings: Mapping[str, Any], place: Place) -> Backbone:
    """The network of `create_backbone`'s arguments."""
    return _backbone(json.dumps(dict(settings), sort_keys=True), place.device)


def recipe_of(settings: Mapping[str, Any]) -> Recipe:
    """A recipe from its settings."""
    return Recipe(**settings)


def mask_blob(coded: bytes, statistics: Statistics | None) -> bytes:
    """A trained mask, coded, and its task's norm statistics as bytes."""
    mask = torch.frombuffer(bytearray(coded), dtype=torch.uint8)
    kept = {f"statistics/{name}": value.cpu() for name, value in (statistics or {}).items()}
    return safetensors.torch.save({"mask": mask, **kept})


def bank_of(
    backbone: Backbone, outcomes: Sequence[Outcome], random: Mapping[str, Any] | None = None
) -> MaskBank:
    """A bank of trained masks, or of random ones as `random` says.

    random: count, seed, and disjoint: whether the masks share the weights out (`disjoint_bank`);
    otherwise they are independent, with a sparsity and, by default, Erdős-Rényi allocation.
    """
    if random is not None and random["disjoint"]:
        return disjoint_bank(
            backbone.layers, random["count"], random["seed"], device=backbone.device
        )
    bank = MaskBank(backbone.layers, backbone.device)
    for position, outcome in enumerate(outcomes):
        name = f"{position}/{outcome.values['task']}"
        info, packed = _decoded(outcome.blob or b"", _shapes(backbone))
        bank.adopt(
            type(info)(name, "edge_popup", info.ones), [each.to(bank.device) for each in packed]
        )
    if random is not None:
        allocation = random.get("allocation", "erdos_renyi")
        add_random_masks(bank, random["count"], random["sparsity"], allocation, random["seed"])
    return bank


def statistics_of(backbone: Backbone, outcome: Outcome) -> Statistics | None:
    """The norm statistics that were kept with a trained mask."""
    prefix = "statistics/"
    kept = safetensors.torch.load(outcome.blob or b"")
    found = {
        name.removeprefix(prefix): value.to(backbone.device)
        for name, value in kept.items()
        if name.startswith(prefix)
    }
    return found or None


def _balanced(labels: np.ndarray, count: int) -> np.ndarray:
    """Positions of `count` examples: the first of each class, then the second of each, …"""
    turn = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        of_class = labels == label
        turn[of_class] = np.arange(of_class.sum())
    return np.argsort(turn, kind="stable")[:count]


@lru_cache(maxsize=2)
def _stream(text: str, root: str) -> Stream:
    settings = json.loads(text)
    name = settings.pop("name")
    folder = settings.pop("folder", "")
    if name in ROOTED:
        settings["root"] = str(Path(root) / folder)
    if name in DOWNLOADED:
        settings["download"] = False
    return create_stream(name, **settings)


@lru_cache(maxsize=2)
def _examples(text: str, number: int, root: str) -> tuple[Data, Data]:
    task = _stream(text, root)[number]
    return task.train, task.test


@lru_cache(maxsize=4)
def _backbone(text: str, device: str) -> Backbone:
    # What a job leaves out is as it was for the networks behind the records and caches.
    return create_backbone(**OLDER_SPEC | json.loads(text)).to(device)


@lru_cache(maxsize=512)
def _decoded(blob: bytes, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> PackedMask:
    from impresslearn.networks.layers import MaskableLayer

    layers = [MaskableLayer(name, shape) for name, shape in shapes]
    coded = safetensors.torch.load(blob)["mask"].numpy().tobytes()
    arrays = decode_mask(coded, [(layer.units, layer.fan_in) for layer in layers])
    mask = {
        layer.name: torch.from_numpy(array) for layer, array in zip(layers, arrays, strict=True)
    }
    return packed_mask("mask", mask, layers)


def _shapes(backbone: Backbone) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((layer.name, layer.shape) for layer in backbone.layers)
