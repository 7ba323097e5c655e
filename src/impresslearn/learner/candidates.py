"""The candidates that `advise` compares, and the learners that try them.

A candidate is a way to learn tasks; its price on bits decides their size. Masks of basis tasks are
trained once for each network and then shared by the candidates that combine them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from impresslearn.data import Examples, Preprocessing, StreamedExamples, classes_of
from impresslearn.data.inputs import one_tensor
from impresslearn.learner.creation import CreationSettings, create_learner
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.presets import preset as find_preset
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone

Data = Examples | StreamedExamples

UNITS: dict[str, Any] = {"granularity": "unit", "precision": "coded"}
LAYERS: dict[str, Any] = {"granularity": "layer", "precision": "coded"}


@dataclass(frozen=True)
class Candidate:
    """A way to learn tasks, but for the price of a bit.

    price, bytes: a price, and what a task of 1,000 digits took at it; slope: -d log(price) /
    d log(bytes) from there on. masks: how many are drawn, from `source`; basis: whether masks of
    basis tasks are combined; features: whether readouts see principal components of their features;
    backbone: a network of its own. settings: of `ImpressLearner`, over the preset's.
    """

    name: str
    preset: str
    price: float
    bytes: int
    slope: float = 2.0
    masks: int = 0
    source: str = "disjoint"
    basis: bool = False
    features: bool = False
    backbone: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def start(self, size: float, examples: int) -> float:
        """Where the search for the price begins at which so many examples take `size` bytes."""
        return self.price * examples / 1000 * (self.bytes / size) ** self.slope

    def suits(self, backbone: Backbone | None, has_basis: bool) -> bool:
        """Whether it can be tried on a network; None: one is made for it."""
        chosen = find_preset(self.preset)
        of_trained = chosen.more.get("start") == "network"
        if self.basis and not has_basis:
            return False
        if backbone is None:
            return not of_trained
        if self.backbone is not None:
            return False
        if chosen.own_head and backbone.own_head is None:
            return False
        mixed = self.basis or self.masks > 0  # in the weights, from nothing
        return backbone.pretrained if of_trained else not (mixed and backbone.pretrained)


CANDIDATES = (
    Candidate("readout of the inputs", "few_labels", 0.001, 760, backbone="linear"),
    Candidate("readout of the network", "few_labels", 0.001, 660),
    Candidate("readout of learned features", "few_labels", 0.001, 810, basis=True, features=True),
    Candidate("readout under basis masks", "few_labels", 0.002, 1400, basis=True),
    Candidate("basis masks, a number a layer", "default", 0.03, 60, basis=True, settings=LAYERS),
    Candidate("a number a weight", "per_weight", 0.26, 460),
    Candidate("basis masks, a number a unit", "default", 0.07, 450, basis=True, settings=UNITS),
    Candidate("20 disjoint masks, a number a unit", "default", 0.08, 660, 1.5, 20, settings=UNITS),
    Candidate("60 disjoint masks, a number a unit", "default", 0.065, 700, 1.5, 60, settings=UNITS),
    Candidate("masks that add to the network", "pretrained", 0.01, 3000),
)
"""The quickest to learn come first: none needs a second trial that is too large and does worse."""


class LearnerFactory:
    """Makes learners for candidates; networks and the masks of basis tasks are made once.

    backbone: None makes the default one of each preset. tasks: all data by name; basis: the names
    of those whose masks are combined.
    """

    def __init__(
        self,
        backbone: Backbone | None,
        tasks: Mapping[str, Data],
        basis: Sequence[str],
        preprocessing: Preprocessing | None,
        seed: int,
    ) -> None:
        self.backbone = backbone
        self.tasks = tasks
        self.basis = tuple(basis)
        self.preprocessing = preprocessing
        self.seed = seed
        self._networks: dict[object, tuple[Backbone, Preprocessing | None]] = {}
        self._banks: dict[bool, MaskBank] = {}

    def learner(
        self, candidate: Candidate, price: float, most: int | None = None
    ) -> ImpressLearner:
        """A learner to try a candidate at a price with, its bank of basis masks shared.

        most: bytes that a task may take, at a higher price where it needs one.
        """
        bank = self._bank(candidate) if candidate.basis else None
        own = {"bit_price": price, "bank": bank, "max_bytes": most}
        learner = self._empty(candidate, own)
        return self._equipped(learner, candidate)

    def finished(
        self, candidate: Candidate, price: float, most: int, basis: Sequence[str], progress: Any
    ) -> ImpressLearner:
        """A learner to go on with: it has learned these basis tasks itself.

        most: bytes that a task may take.
        """
        own = {"bit_price": price, "max_bytes": most, "progress": progress}
        learner = self._empty(candidate, own)
        for name in basis:
            learner.learn_basis(name, self.tasks[name])
        return self._equipped(learner, candidate)

    def _equipped(self, learner: ImpressLearner, candidate: Candidate) -> ImpressLearner:
        """With the masks that are drawn, and the features that are learned."""
        if candidate.masks:
            learner.add_masks(candidate.masks, source=candidate.source)
        if candidate.features:
            learner.learn_features(*(self.tasks[name] for name in self.basis))
        return learner

    def _empty(self, candidate: Candidate, settings: Mapping[str, Any]) -> ImpressLearner:
        backbone, preprocessing = self._network(candidate)
        own = {**candidate.settings, "preprocessing": preprocessing, "seed": self.seed}
        own |= {"progress": False, **settings}
        return ImpressLearner.from_preset(backbone, candidate.preset, **own)

    def _network(self, candidate: Candidate) -> tuple[Backbone, Preprocessing | None]:
        if self.backbone is not None:
            return self.backbone, self.preprocessing
        kind = candidate.backbone, find_preset(candidate.preset).own_head
        if kind not in self._networks:
            given = CreationSettings(candidate.backbone, preset=candidate.preset, seed=self.seed)
            classes = max(len(classes_of(each.labels)) for each in self.tasks.values())
            shape = one_tensor(next(iter(self.tasks.values())).inputs_at(np.array([0])))[0].shape
            made = create_learner(given, classes, shape, self.preprocessing)
            self._networks[kind] = made.backbone, made.settings.preprocessing
        return self._networks[kind]

    def _bank(self, candidate: Candidate) -> MaskBank:
        own_head = find_preset(candidate.preset).own_head
        if own_head not in self._banks:
            backbone, preprocessing = self._network(candidate)
            settings: dict[str, Any] = {"preprocessing": preprocessing, "seed": self.seed}
            trained = ImpressLearner.from_preset(backbone, "default", progress=False, **settings)
            for name in self.basis:
                trained.learn_basis(name, self.tasks[name])
            self._banks[own_head] = trained.bank_
        return self._banks[own_head]
