"""Loads what jobs start from: examples, networks and banks, made once a process if possible."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from torch.nn.functional import interpolate

from benchmarks.jobs import Job, JobContext, Outcome
from benchmarks.streams import STREAMS
from benchmarks.work.packaged import minilm_tokens, packaged
from impresslearn.data import Examples, StreamedExamples
from impresslearn.errors import MissingDataError
from impresslearn.learner import ImpressLearner
from impresslearn.masks import draw_masks, random_bank
from impresslearn.masks.bank import MaskBank, MaskInfo, PackedMask, packed_mask
from impresslearn.masks.codec import decode_mask
from impresslearn.networks import Backbone, BlockFeatures, adapt, create_backbone
from impresslearn.networks.architectures import resnet20
from impresslearn.networks.layers import MaskableLayer
from impresslearn.networks.prediction import Statistics

PREFIX = "statistics/"
# The settings of `load_task` that features depend on.
OF_A_TASK = ("stream", "task", "backbone", "labels", "balanced", "validation", "size")
HELD_OUT = 6  # every sixth training example is for validation


class TaskData(NamedTuple):
    """A task's name and examples."""

    name: str
    train: Examples | StreamedExamples
    test: Examples | StreamedExamples


def load_task(settings: Mapping[str, Any], place: JobContext) -> TaskData:
    """Task number settings["task"] of the stream settings["stream"].

    settings["labels"], if any, says how many examples to train on: the first ones, or with
    settings["balanced"] the first ones of each class in turn. With settings["validation"] a
    sixth of the training examples, drawn once for all, takes the place of the test examples.
    Images are resized to settings["size"], if any. With settings["featured"] the inputs are
    `Features` of the network, computed once a process.
    """
    if settings.get("featured"):
        named = {key: settings[key] for key in OF_A_TASK if key in settings}
        return _featured(json.dumps(named, sort_keys=True), place)
    stream = json.dumps(dict(settings["stream"]), sort_keys=True)
    name, train, test = _task(stream, int(settings["task"]), place.data)
    if settings.get("validation"):
        order = np.random.default_rng(0).permutation(len(train))
        held, left = np.split(order, [len(train) // HELD_OUT])
        train, test = train.subset(np.sort(left)), train.subset(np.sort(held))
        test = replace(test, augment=None)
    labels = settings.get("labels")
    if labels is not None and isinstance(train, Examples):
        chosen = _balanced(train.labels, labels) if settings.get("balanced") else range(int(labels))
        train = train.subset(chosen)
    if settings.get("size"):
        train, test = (_resized(examples, settings["size"]) for examples in (train, test))
    return TaskData(name, train, test)


def check_inputs(jobs: Iterable[Job], place: JobContext) -> None:
    """Opens each kind of data that jobs read. Raises MissingDataError before the work begins."""
    seen = set()
    for job in jobs:
        stream = job.settings.get("stream", {})
        weights = job.settings.get("backbone", {}).get("weights")
        if stream and stream["name"] not in seen:
            seen.add(stream["name"])
            _stream(json.dumps(stream, sort_keys=True), place.data)[0]
        if weights is not None and weights not in seen:
            seen.add(weights)
            load_backbone(job.settings, place)


def load_backbone(settings: Mapping[str, Any], place: JobContext) -> Backbone:
    """The network of settings["backbone"], arguments of `create_backbone`.

    With weights, an .npz file among the data, it is a trained ResNet-20: num_classes, width and
    depth are its sizes, norm and head go to `adapt`. With package, it is a network of `packaged`.
    blocks are the names of the blocks that the last layer reads, True for all of them.
    """
    # The arrays are the parameters and running statistics, by name; inputs are RGB in [0, 1] minus
    # (0.485, 0.456, 0.406) over (0.229, 0.224, 0.225).
    named = json.dumps(dict(settings["backbone"]), sort_keys=True)
    data = place.data if "weights" in settings["backbone"] else ""
    return _backbone(named, place.device, data)


def load_bank(
    backbone: Backbone, needs: Sequence[Outcome], random: Mapping[str, Any] | None = None
) -> MaskBank:
    """A bank of the masks that needed jobs trained, or of random ones as `random` says.

    random: count, seed, and disjoint: whether the masks share the weights out, with kernels those
    of convolutions whole; otherwise they are independent, with a sparsity and, by
    default, Erdős-Rényi allocation.
    """
    if random is not None and random["disjoint"]:
        how = {"source": "disjoint_kernels" if random.get("kernels") else "disjoint"}
        how |= {"seed": random["seed"], "device": backbone.device}
        return random_bank(backbone.layers, random["count"], **how)
    bank = MaskBank(backbone.layers, backbone.device)
    for position, outcome in enumerate(needs):
        info, packed = _decoded(outcome.blob or b"", backbone.layers)
        named = MaskInfo(f"{position}/{outcome.values['task']}", "edge_popup", info.ones)
        bank.adopt(named, [bits.to(bank.device) for bits in packed])
    if random is not None:
        allocation = random.get("allocation", "erdos_renyi")
        count, sparsity = random["count"], random["sparsity"]
        for mask in draw_masks(bank, count, sparsity, allocation, random["seed"]):
            bank.adopt(*mask)
    return bank


def mask_blob(coded: bytes, statistics: Statistics | None) -> bytes:
    """A trained mask, coded, and its task's norm statistics as bytes."""
    mask = torch.frombuffer(bytearray(coded), dtype=torch.uint8)
    kept = {f"{PREFIX}{name}": value.cpu() for name, value in (statistics or {}).items()}
    return safetensors.torch.save({"mask": mask, **kept})


def statistics_of(backbone: Backbone, outcome: Outcome) -> Statistics | None:
    """The norm statistics that were kept with a trained mask."""
    statistics = {
        name.removeprefix(PREFIX): value.to(backbone.device)
        for name, value in safetensors.torch.load(outcome.blob or b"").items()
        if name.startswith(PREFIX)
    }
    return statistics or None


def _balanced(labels: np.ndarray, count: int) -> np.ndarray:
    """Positions of `count` examples: the first of each class, then the second of each, …"""
    turn = pd.Series(labels).groupby(labels).cumcount()
    return np.argsort(turn.to_numpy(), kind="stable")[:count]


@lru_cache(maxsize=2)
def _task(stream: str, number: int, data: str) -> TaskData:
    task = _stream(stream, data)[number]
    return TaskData(task.name, task.train, task.test)


@lru_cache(maxsize=64)  # the evaluation tasks of a benchmark, for all of its methods
def _featured(settings: str, place: JobContext) -> TaskData:
    """A task of `load_task` with features of the frozen network as inputs."""
    named = json.loads(settings)
    learner = ImpressLearner.from_preset(load_backbone(named, place), "few_labels", progress=False)
    name, *parts = load_task(named, place)
    return TaskData(name, *(replace(part, inputs=learner.features(part.inputs)) for part in parts))


def _resized(examples: Examples, size: int) -> Examples:
    """Square images of this many pixels a side."""
    inputs = interpolate(examples.inputs, size=size, mode="bilinear", align_corners=False)
    return replace(examples, inputs=inputs)


@lru_cache(maxsize=2)
def _stream(settings: str, data: str) -> Any:
    """A stream of `STREAMS` by its name; `folder` is one of the data, where it lies."""
    named = json.loads(settings)
    make = STREAMS[named.pop("name")]
    parameters = inspect.signature(make).parameters
    if "root" in parameters:
        named["root"] = str(Path(data) / named.pop("folder", ""))
    if "download" in parameters:
        named["download"] = False
    return make(**named)


@lru_cache(maxsize=4)
def _backbone(settings: str, device: str, data: str) -> Backbone:
    named = json.loads(settings)
    if blocks := named.pop("blocks", None):
        inner = _backbone(json.dumps(named, sort_keys=True), "cpu", data)
        some = minilm_tokens(["one", "two"]) if inner.vocabulary else torch.rand(2, 3, 64, 64)
        module = BlockFeatures(inner.module, some, blocks=None if blocks is True else blocks)
        return adapt(module, input_shape=inner.input_shape, norm=inner.norm).to(device)
    if "package" in named:
        return packaged(named["package"]).to(device)
    if "weights" in named:
        path = Path(data) / named["weights"]
        if not path.is_file():
            raise MissingDataError(f"no {path}: put resnet20-12fca82f or resnet32-d509ac18 there")
        with np.load(path, allow_pickle=False) as archive:
            state = {name: torch.from_numpy(archive[name]) for name in archive.files}
        sizes = {key: named[key] for key in ("width", "depth") if key in named}
        module = resnet20(named.get("num_classes", 10), **sizes)
        counters = {name: value for name, value in module.state_dict().items() if not value.ndim}
        module.load_state_dict(counters | state)
        module.eval()
        how = {key: named[key] for key in ("norm", "head") if key in named}
        return adapt(module, input_shape=module.input_shape, **how).to(device)
    # What a job leaves out is as it was for the networks behind the records and caches.
    older = {"init": "kaiming_normal", "gain": 1.0, "init_version": 1}
    return create_backbone(**older | named).to(device)


@lru_cache(maxsize=512)
def _decoded(blob: bytes, layers: tuple[MaskableLayer, ...]) -> PackedMask:
    coded = safetensors.torch.load(blob)["mask"].numpy().tobytes()
    arrays = decode_mask(coded, [(layer.units, layer.fan_in) for layer in layers])
    named = zip(layers, arrays, strict=True)
    mask = {layer.name: torch.from_numpy(array) for layer, array in named}
    return packed_mask("mask", mask, layers)
