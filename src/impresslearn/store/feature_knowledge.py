"""What the tasks of a store know of their inputs by the features of a pretrained network."""

from __future__ import annotations

from contextlib import AbstractContextManager
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
from impresslearn.store.rows import Rows
from impresslearn.store.tasks import TrainingRun


class FeatureKnowledge:
    """The coordinates of features that a store keeps once, and the profiles of tasks in them."""

    def __init__(self, rows: Rows, committing: AbstractContextManager[Any]) -> None:
        self._rows, self._committing = rows, committing
        # Whether a task may still add what all tasks share, coordinates or a projection.
        self.adds_shared = True
        self._space: FeatureSpace | None = None

    @property
    def applies(self) -> bool:
        """Whether tasks know their inputs by the features of the network."""
        backbone = self._rows.backbone
        own_head = backbone.own_head is not None
        return backbone.pretrained and own_head and not backbone.normalises_by_batch

    @property
    def space(self) -> FeatureSpace | None:
        """The coordinates; None before a task gave them."""
        if self._space is None and self.applies:
            self._space = self._rows.space()
        return self._space

    @torch.no_grad()
    def profile(
        self,
        frozen: TaskView,
        view: TaskView,
        run: TrainingRun,
        inputs: Tensor | Inputs,
        places: np.ndarray,
    ) -> FeatureProfile | None:
        """What a task knows of its inputs; the first one also gives the coordinates.

        None where the task has too few examples, or a head that runs over positions.

        - frozen: the frozen network itself.
        - inputs: of the examples at these places.
        """
        backbone = self._rows.backbone
        if run.features is not None and isinstance(inputs, Features) and frozen.reads(inputs):
            # Use all examples: their features are known already.
            inputs = Features(run.features, inputs.inputs, inputs.network, inputs.keys, {})
            places = np.arange(len(run.examples))
        features = frozen_features(backbone, frozen, inputs)
        head = head_of(backbone, view.weights)
        if head is not None and head[0].numel() != features.shape[1]:
            return None  # the head moves over positions: its classes have no directions
        index_of = {label: index for index, label in enumerate(run.classes)}
        targets = encode_labels(run.examples.labels[places], index_of).to(features.device)
        known = self.space
        space = known or self._first_space(features, targets)
        if space is None:
            return None
        directions = space.directions(head, len(run.classes))
        return feature_profile(
            space, features, targets, directions, run.profile_bytes, is_first=known is None
        )

    def _first_space(self, features: Tensor, targets: Tensor) -> FeatureSpace | None:
        """Learns the coordinates that all tasks share, and keeps them; None for too few examples.

        Wide features are projected first, as readouts project them.
        """
        rows = self._rows
        too_few = len(features) < LEAST_EXAMPLES or not self.adds_shared
        if too_few or not features.isfinite().all():
            return None
        number, projection = rows.last_projection()
        if projection is not None and (projection.num_masks or not projection.residual):
            # It is of features under masks.
            number, projection = 0, None
        is_new = projection is None and features.shape[1] > MOST_FEATURES
        if is_new:
            if len(features) < COMPONENTS:
                return None
            projection = Projection.of(features, COMPONENTS, 0, True)
        matrix = None if projection is None else projection.matrix.to(features.device)
        space = FeatureSpace.of(features, targets, number, matrix)
        if space is not None:
            with self._committing, rows.database.transaction():
                if rows.space() is None:  # no other process was faster
                    if is_new and projection is not None:
                        space = replace(space, projection=rows.add_projection(projection))
                    rows.write_space(space)
        return self.space
