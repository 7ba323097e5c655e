"""Readouts of a learner's tasks: features of the network, and numbers that fit into a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import Coefficients, store_coefficients
from impresslearn.coefficients.quantisation import Grids
from impresslearn.coefficients.readout import COMPONENTS, Projection, Readout, ReadoutFit
from impresslearn.data import Label, to_batches
from impresslearn.errors import InputError
from impresslearn.inference.feature_scores import profile_share
from impresslearn.inference.unknown import largest_profile_bytes
from impresslearn.learner.settings import LearnerSettings
from impresslearn.networks.inputs import TrainingData, some_inputs
from impresslearn.networks.prediction import BATCH
from impresslearn.store import Store
from impresslearn.store.tasks import label_map_bytes

FEW_FEATURES = 64  # fewer are read as they are


class TooLargeError(InputError):
    """A task takes more than max_bytes."""


class UnreadableFeaturesError(InputError):
    """The last layer does not read one vector of features per input."""


def room_of(store: Store, settings: LearnerSettings, name: str, data: TrainingData) -> int | None:
    """What max_bytes leaves for a task's numbers; None without it."""
    examples, classes = data
    if settings.max_bytes is None:
        return None
    profile = largest_profile_bytes(some_inputs(examples, 1))
    if store.features.applies:
        profile = max(profile, profile_share(settings.max_bytes))
    room = settings.max_bytes - label_map_bytes(classes) - profile
    if room < 0:
        raise does_not_fit(name, settings.max_bytes)
    return room


def does_not_fit(name: str, max_bytes: int | None) -> TooLargeError:
    return TooLargeError(
        f"task {name!r} does not fit into max_bytes = {max_bytes}: what identifies and labels it "
        "takes most of them; make a learner with a larger one"
    )


@dataclass(frozen=True)
class Readouts:
    """Fits the readouts of a store's tasks by a learner's settings."""

    store: Store
    settings: LearnerSettings

    def fit(
        self,
        features: Tensor,
        targets: Tensor,
        classes: Sequence[Label],
        projection: Projection | None,
    ) -> ReadoutFit:
        """The regression of a task's readout."""
        head = self.store.backbone.own_head
        bias = head is not None and len(head.shapes) == 2
        return ReadoutFit(features, targets, len(classes), projection=projection, bias=bias)

    def joined(
        self,
        name: str,
        fit: ReadoutFit,
        projection: int,
        data: TrainingData,
        body: Coefficients,
        residual: bool = True,
    ) -> Coefficients:
        """What a task learns: numbers in the network, and the best readout within max_bytes.

        - projection: the number of the one that the fit used.
        - body: the task's changes of the network.
        """
        if self.settings.precision != "coded":
            return self._with_numbers(body, projection, fit.exact(), None, residual)
        room, price = room_of(self.store, self.settings, name, data), self.settings.bit_price
        if room is None:
            return self._with_numbers(body, projection, *fit.rounded(price), residual)
        backbone, classes = self.store.backbone, len(data[1])
        # Bytes beside the weights' code: of the body, the bias, models, steps and whole words.
        surplus = store_coefficients(body, "coded", backbone, classes).nbytes if body.parts else 0
        while surplus <= room:
            bits = 8 * (room - surplus)
            suited = fit.within(bits)
            number = projection if suited.is_projected else 0
            learned = self._with_numbers(body, number, *suited.rounded(price, bits), residual)
            size = store_coefficients(learned, "coded", backbone, classes).nbytes
            if size <= room:
                return learned
            surplus += size - room
        raise does_not_fit(name, self.settings.max_bytes)

    def _with_numbers(
        self,
        body: Coefficients,
        projection: int,
        numbers: tuple[Tensor, ...],
        grids: Grids | None,
        residual: bool,
    ) -> Coefficients:
        """A body's numbers and a readout's."""
        moved = tuple(values.to(self.store.backbone.device) for values in numbers)
        part = Readout(len(moved[0]), projection, residual)
        if grids is not None:
            grids = (*(body.grids or ()), *grids)
        return Coefficients((*body.parts, part), (*body.numbers, moved), body.num_masks, grids)

    def first_projection(
        self, features: Tensor, num_masks: int, residual: bool
    ) -> tuple[int, Projection | None]:
        """Learns the projection that all readouts share from the first task with enough examples.

        Components of one task's features serve other tasks almost as well as components of many.
        """
        dimensions = min(COMPONENTS, features.shape[1])
        few = dimensions < FEW_FEATURES or len(features) < dimensions
        if few or not self.store.features.adds_shared:
            return 0, None
        return self.keep_projection(features, dimensions, num_masks, residual)

    def keep_projection(
        self, features: Tensor, dimensions: int, num_masks: int, residual: bool
    ) -> tuple[int, Projection]:
        projection = Projection.of(features, dimensions, num_masks, residual)
        projection = replace(projection, matrix=projection.matrix.to(self.store.backbone.device))
        return self.store.commit_projection(projection), projection

    def networks(self) -> tuple[int, bool]:
        """How many masks give features, and whether the network itself does.

        Raises InputError for networks whose features a readout cannot use.
        """
        store, backbone = self.store, self.store.backbone
        if backbone.own_head is None:
            raise InputError('a readout is a head of a task; make the network with head="own"')
        if backbone.has_task_statistics:
            raise InputError(
                "a readout uses features of networks with one set of norm statistics; make the "
                'network with norm="shared" or norm="batch", not "per_task"'
            )
        if backbone.shares_statistics and store.shared is None:
            raise InputError(
                "the first task gathers the norm statistics that all tasks share; learn a basis "
                "task before a readout"
            )
        return len(store.bank), self.settings.start == "network" or not len(store.bank)

    def features(self, data: TrainingData, num_masks: int, residual: bool) -> tuple[Tensor, Tensor]:
        """Features (n, f) of all examples, and their class indices (n,).

        Raises InputError for a network whose last layer does not read one vector an input.
        """
        store, backbone = self.store, self.store.backbone
        view = store.feature_view(num_masks, residual)
        parts, targets = [], []
        for inputs, indices in to_batches(*data, backbone.device).batches(BATCH):
            parts.append(view.features(backbone, inputs).float())
            targets.append(indices)
        features = torch.cat(parts)
        width = backbone.own_head.fan_in if backbone.own_head else 0
        if features.shape[1] != (num_masks + residual) * width:
            raise UnreadableFeaturesError(
                f"the last layer of {backbone.name} reads {(num_masks + residual) * width} "
                f"features, but {features.shape[1]} enter it an input; a readout needs a linear one"
            )
        return features, torch.cat(targets)
