"""Learns readouts, and the projection of features that they share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.coefficients.readout import Projection, Readout, fit_readout
from impresslearn.data import BatchSource, to_batches
from impresslearn.errors import InputError
from impresslearn.learner.settings import LearnerSettings
from impresslearn.networks.inputs import TrainingData
from impresslearn.networks.prediction import BATCH
from impresslearn.store import Store

FEWEST = 2


@torch.no_grad()
def learn_readout(
    store: Store, settings: LearnerSettings, source: BatchSource, num_classes: int
) -> Coefficients:
    """A readout of the features under every mask, or of their projection kept last.

    Inputs are taken as they are, without augmentation. Raises InputError as `check_features`.
    """
    check_features(store)
    number, projection = store.last_projection()
    num_masks, residual = _networks(store, settings)
    if projection is not None:
        num_masks, residual = projection.num_masks, projection.residual
    features, targets = _features(store, [source], num_masks, residual)
    if projection is not None:
        features = features @ projection.matrix
    own = store.backbone.own_head
    price = settings.coefficient_training.spec.bit_price
    fitted = fit_readout(
        features,
        targets,
        num_classes,
        bias=own is not None and len(own.shapes) == 2,
        bit_price=price,
        components=projection is not None,
    )
    head = tuple(values.to(store.backbone.device) for values in fitted.head)
    part = Readout(len(head[0]), number, residual)
    return Coefficients((part,), (head,), num_masks, fitted.grids)


@torch.no_grad()
def learn_projection(
    store: Store,
    settings: LearnerSettings,
    data: Sequence[TrainingData],
    dimensions: int,
) -> Projection:
    """The leading components of the features of all these inputs under every mask."""
    if not settings.coefficient_training.spec.parametrisation.closed_form:
        raise InputError(
            f"features are learned for readouts, and this learner has granularity "
            f'{settings.granularity!r}; make it with granularity="readout"'
        )
    if not data:
        raise InputError("features are learned from data; give that of a task or more")
    check_features(store)
    num_masks, residual = _networks(store, settings)
    sources = [to_batches(*each, store.backbone.device) for each in data]
    features, _ = _features(store, sources, num_masks, residual)
    if len(features) < FEWEST:
        raise InputError(f"features are learned from {FEWEST} inputs or more, got {len(features)}")
    found = Projection.of(features, dimensions, num_masks, residual)
    return Projection(num_masks, residual, found.matrix.to(store.backbone.device))


def check_features(store: Store) -> None:
    """Raises InputError for networks whose features a readout cannot use."""
    backbone = store.backbone
    if backbone.own_head is None:
        raise InputError('a readout is a head of the task\'s own; make the network with head="own"')
    if backbone.has_task_statistics:
        raise InputError(
            "a readout uses features of networks with one set of norm statistics; make the network "
            'with norm="shared" or norm="batch", not "per_task"'
        )
    if backbone.shares_statistics and store.shared is None:
        raise InputError(
            "the norm statistics that all tasks share are those of the first one learned; learn a "
            "basis task before a readout"
        )


def _networks(store: Store, settings: LearnerSettings) -> tuple[int, bool]:
    """How many masks give features, and whether the network itself does."""
    return len(store.bank), settings.start == "network" or not len(store.bank)


def _features(
    store: Store, sources: Sequence[BatchSource], num_masks: int, residual: bool
) -> tuple[Tensor, Tensor]:
    """Features (n, f) of all examples, and their class indices (n,)."""
    view, backbone = store.feature_view(num_masks, residual), store.backbone
    found, targets = [], []
    for inputs, indices in chain.from_iterable(source.batches(BATCH) for source in sources):
        found.append(view.features(backbone, inputs).float())
        targets.append(indices)
    features = torch.cat(found)
    wanted = (num_masks + residual) * (backbone.own_head.fan_in if backbone.own_head else 0)
    if features.shape[1] != wanted:
        raise InputError(
            f"the last layer of {backbone.name} reads {wanted} features, but {features.shape[1]} "
            "enter it an input; a readout needs a linear one"
        )
    return features, torch.cat(targets)
