"""Learns readouts, and the projection of features that they share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from impresslearn.coefficients.mixing import Coefficients, Readout
from impresslearn.coefficients.readout import Projection, fit_readout
from impresslearn.data import BatchSource, to_batches
from impresslearn.errors import InputError
from impresslearn.networks.inputs import TrainingData
from impresslearn.networks.prediction import BATCH
from impresslearn.state.settings import LearnerSettings
from impresslearn.state.state import LearnerState

FEWEST = 2


@torch.no_grad()
def learn_readout(
    state: LearnerState, settings: LearnerSettings, source: BatchSource, num_classes: int
) -> Coefficients:
    """A readout of the features under every mask, or of their projection kept last.

    Inputs are taken as they are, without augmentation. Raises InputError as `check_features`.
    """
    check_features(state)
    number, projection = state.last_projection()
    num_masks, residual = _networks(state, settings)
    if projection is not None:
        num_masks, residual = projection.num_masks, projection.residual
    features, targets = _features(state, [source], num_masks, residual)
    if projection is not None:
        features = features @ projection.matrix
    own = state.backbone.own_head
    price = settings.coefficient_training.spec.bit_price
    found = fit_readout(
        features,
        targets,
        num_classes,
        bias=own is not None and len(own.shapes) == 2,
        bit_price=price,
        components=projection is not None,
    )
    return Coefficients(
        (),
        head=tuple(each.to(state.backbone.device) for each in found.head),
        residual=residual,
        grids=found.grids,
        readout=Readout(num_masks, number),
    )


@torch.no_grad()
def learn_projection(
    state: LearnerState,
    settings: LearnerSettings,
    data: Sequence[TrainingData],
    dimensions: int,
) -> Projection:
    """The leading components of the features of all these inputs under every mask."""
    if settings.granularity != "readout":
        raise InputError(
            f"features are learned for readouts, and this learner has granularity "
            f'{settings.granularity!r}; make it with granularity="readout"'
        )
    if not data:
        raise InputError("features are learned from data; give that of a task or more")
    check_features(state)
    num_masks, residual = _networks(state, settings)
    sources = [to_batches(*each, state.backbone.device) for each in data]
    features, _ = _features(state, sources, num_masks, residual)
    if len(features) < FEWEST:
        raise InputError(f"features are learned from {FEWEST} inputs or more, got {len(features)}")
    found = Projection.of(features, dimensions, num_masks, residual)
    return Projection(num_masks, residual, found.matrix.to(state.backbone.device))


def check_features(state: LearnerState) -> None:
    """Raises InputError for networks whose features a readout cannot use."""
    backbone = state.backbone
    if backbone.own_head is None:
        raise InputError('a readout is a head of the task\'s own; make the network with head="own"')
    if backbone.has_task_statistics:
        raise InputError(
            "a readout uses features of networks with one set of norm statistics; make the network "
            'with norm="shared" or norm="batch", not "per_task"'
        )
    if backbone.shares_statistics and state.shared is None:
        raise InputError(
            "the norm statistics that all tasks share are those of the first one learned; learn a "
            "basis task before a readout"
        )


def _networks(state: LearnerState, settings: LearnerSettings) -> tuple[int, bool]:
    """How many masks give features, and whether the network itself does."""
    return len(state.bank), settings.start == "network" or not len(state.bank)


def _features(
    state: LearnerState, sources: Sequence[BatchSource], num_masks: int, residual: bool
) -> tuple[Tensor, Tensor]:
    """Features (n, f) of all examples, and their class indices (n,)."""
    view, backbone = state.feature_view(num_masks, residual), state.backbone
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
