"""Computes features of raw inputs once: tasks learn, predict and are recognised by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_mapping
from impresslearn.data import Examples, Features, Inputs, as_inputs, as_network_inputs, classes_of
from impresslearn.data.examples import raw
from impresslearn.data.preprocessing import Prepared
from impresslearn.errors import InputError
from impresslearn.learner.readouts import features_of, networks_of, targets_of
from impresslearn.learner.trainer import Trainer
from impresslearn.networks.inputs import (
    PASSED,
    check_passes,
    checked_examples,
    some_inputs,
    spread_places,
)
from impresslearn.store import Store

# How far given features may be from the network's own, as a share of the largest.
LARGEST_DIFFERENCE = 0.02


# Tensors made in inference mode could not be learned with.
@torch.inference_mode(False)
@torch.no_grad()
def keep_features(trainer: Trainer, inputs: Any, values: Any = None) -> Features:
    """The features of inputs, computed or given; arguments as `ImpressLearner.features`."""
    store, backbone = trainer.store, trainer.store.backbone
    if backbone.normalises_by_batch:
        raise InputError(
            f"the features of {backbone.name} depend on the batch that they are computed in, by "
            "its batch norms, so they cannot be kept; give the inputs themselves"
        )
    networks = networks_of(store, trainer.settings, store.last_projection()[1])
    # Labels do not count: one for all inputs makes examples of them.
    given = inputs.data if isinstance(inputs, Prepared) else inputs
    given = as_network_inputs(given) if isinstance(given, (Mapping, Inputs)) else given
    first = given.tensors[0] if isinstance(given, Inputs) else raw(given)
    data: Any = given, np.zeros(first.shape[:1], dtype=np.int64)
    data = Prepared(data) if isinstance(inputs, Prepared) else data
    examples = checked_examples(backbone, data, trainer.preprocessing)
    assert isinstance(examples, Examples)
    if not backbone.checked:
        check_passes(backbone, some_inputs(examples, PASSED))
    places = spread_places(len(examples), PASSED)
    some = examples if values is None else examples.subset(places)
    computed = features_of(store, some, *networks)
    if values is not None:
        values = as_inputs(values).to(backbone.device)
        _check_values(values, computed, len(examples), places)
    keys = store.feature_view(*networks).feature_keys or ()
    form = trainer.raw_form(data, examples)
    kept = computed if values is None else values
    return Features(kept, examples.inputs, backbone.identity, keys, form)


@torch.inference_mode(False)
@torch.no_grad()
def learn_class_map(trainer: Trainer, tasks: Mapping[str, Any]) -> None:
    """Learns a class map; arguments as `ImpressLearner.tell_apart`."""
    store, backbone = trainer.store, trainer.store.backbone
    store.database.check_writable()
    if backbone.own_head is None or backbone.has_task_statistics or backbone.normalises_by_batch:
        raise InputError(
            "tasks are told apart by the features of a network that all of them share, with heads "
            "of their own: make it with il.adapt"
        )
    check_mapping("tasks", tasks, "{name: (inputs, labels)}")
    tables = {}
    for given, labelled in tasks.items():
        learned = store.tasks.learned(given)
        examples = checked_examples(backbone, labelled, trainer.preprocessing)
        if set(classes_of(examples.labels)) != set(learned.classes):
            raise InputError(
                f"task {given!r} is told apart by examples of all its classes, {learned.classes}, "
                f"and no others; the data have {tuple(classes_of(examples.labels))}"
            )
        targets = targets_of((examples, learned.classes))
        tables[learned.name] = features_of(store, examples, 0, True), targets
    store.commit_class_map(tables)


@torch.no_grad()
def evidence_of(store: Store, tasks: Sequence[str], values: Tensor | Inputs) -> Tensor | None:
    """(n, T) what the class map says of prepared inputs; None unless it has all these tasks."""
    class_map = store.class_map
    if class_map is None or not tasks or not set(tasks) <= set(class_map.codes):
        return None
    features = store.feature_view(0, True).features(store.backbone, values)
    return class_map.evidence(features, tasks)


def _check_values(values: Tensor, computed: Tensor, count: int, places: np.ndarray) -> None:
    """Raises InputError unless features (n, f) are close to those computed of some rows."""
    shape = (count, computed.shape[1])
    if values.shape != shape:
        raise InputError(
            f"values must hold a row per input and a column per feature, {shape}, got "
            f"{tuple(values.shape)}"
        )
    apart = (values[torch.from_numpy(places)] - computed).abs().amax(dim=1)
    row = int(apart.argmax())
    if apart[row] > LARGEST_DIFFERENCE * computed.abs().max():
        raise InputError(
            f"the features of input {places[row]} differ from values by up to "
            f"{float(apart[row]):.2g}: they are of another network, or in another order; leave out "
            "values to compute them"
        )
