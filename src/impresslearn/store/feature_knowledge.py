"""Profiles by which tasks recognise their inputs from the features of a pretrained network.

All tasks of a store share one system of coordinates for features, which the first task sets.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.readout import COMPONENTS, Projection
from impresslearn.data import Features, Inputs, encode_labels
from impresslearn.inference.feature_scores import (
    LEAST_EXAMPLES,
    MOST_FEATURES,
    FeatureProfile,
    FeatureSpace,
    feature_profile,
    frozen_features,
    head_of,
)
from impresslearn.networks.prediction import TaskView
from impresslearn.store.tasks import TrainingRun


@torch.no_grad()
def learn_profile(
    store: Any, view: TaskView, run: TrainingRun, inputs: Tensor | Inputs, places: np.ndarray
) -> FeatureProfile | None:
    """The profile of a task; the first task of a store also sets the coordinates.

    None if the task has too few examples, or if its head runs over positions of the input.

    inputs: the inputs of the examples at `places`.
    """
    backbone, frozen = store.backbone, store.frozen_view
    if run.features is not None and isinstance(inputs, Features) and frozen.reads(inputs):
        # Use all examples: their features are known already.
        inputs = Features(run.features, inputs.inputs, inputs.network, inputs.keys, {})
        places = np.arange(len(run.examples))
    features = frozen_features(backbone, frozen, inputs)
    head = head_of(backbone, view.weights)
    if head is not None and head[0].numel() != features.shape[1]:
        return None  # the head runs over positions: classes have no directions
    targets = encode_labels(run.examples.labels[places], run.classes).to(features.device)
    is_first = store.space is None
    space = _first_space(store, features, targets) if is_first else store.space
    if space is None:
        return None
    directions = space.directions(head, len(run.classes))
    return feature_profile(space, features, targets, directions, run.profile_bytes, is_first)


def _first_space(store: Any, features: Tensor, targets: Tensor) -> FeatureSpace | None:
    """Learns and stores the coordinates that all tasks share; None for too few examples.

    Wide features are first projected to fewer dimensions, as for readouts.
    """
    too_few = len(features) < LEAST_EXAMPLES or not store.adds_shared
    if too_few or not features.isfinite().all():
        return None
    number, projection = store.rows.last_projection()
    if projection is not None and (projection.num_masks or not projection.residual):
        number, projection = 0, None  # it projects features under masks
    elif projection is not None and len(projection.matrix.T) < features.shape[1] <= MOST_FEATURES:
        number, projection = 0, None  # dimensions that it drops tell inputs apart
    added = None
    if projection is None and features.shape[1] > MOST_FEATURES:
        if len(features) < COMPONENTS:
            return None
        added = projection = Projection.of(features, COMPONENTS, 0, False)
    matrix = None if projection is None else projection.matrix.to(features.device)
    space = FeatureSpace.of(features, targets, number, matrix)
    if space is not None:
        with store.committing, store.database.transaction():
            if store.rows.space() is None:  # unless another process was faster
                if added is not None:
                    space = replace(space, projection=store.rows.add_projection(added))
                store.rows.write_space(space)
    return store.space
