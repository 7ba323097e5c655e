"""How unlike a task's own inputs others are, in the features of a pretrained network.

A store keeps one `FeatureSpace`: coordinates in which the classes of its first task have unit
variance. In it a task keeps the means of its classes, coded: its head points in their directions,
so only the distance from those is kept. Two things speak for "unknown". Inputs are *near* a class
where it explains them better than all inputs of the store do (relative Mahalanobis distance, Ren et
al. 2021). They are *far* where their distance from the centre of all inputs is unusual for own
inputs: larger, or, as with noise, which excites few features, smaller.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST, decode_levels, encode_levels
from impresslearn.data import Features, Inputs
from impresslearn.inference.unknown import limits_of
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView

MOST_FEATURES = 512  # features of a network at most, unless a projection leaves fewer
LEAST_EXAMPLES = 50
# Shrinkage of covariances towards equal variances: this number of pseudo-examples per dimension,
# and a share at most. Classes of other tasks vary in other directions than the first task's.
PSEUDO_EXAMPLES, MOST_SHRINKAGE = 2.0, 0.9
# Steps of the means, in standard deviations of a class; the first one whose code fits is taken.
STEPS = tuple(2 ** (quarter / 4) for quarter in range(-4, 17))
# A profile takes a share of a task's budget, between the least and the most bytes.
SHARE, LEAST_BYTES, MOST_BYTES = 1 / 6, 36, 128
# Standard deviations of own inputs that "far" leaves free, and what each one beyond counts.
FREE, FAR = 2.0, 2.0
NUMBERS = 8
FOLDS = 5


@dataclass(frozen=True)
class FeatureSpace:
    """Coordinates (features - mean) · basis of features (n, f) of the frozen network.

    - projection: the number of the `Projection` that the basis begins with; 0 for none.
    - mean: (f,) of the first task's features.
    - rotation: (p, d) from projected features to coordinates.
    - variances: (d,) of the coordinates of all inputs; those within a class are 1.
    - matrix: (f, p) of that projection, or None.
    """

    projection: int
    mean: Tensor
    rotation: Tensor
    variances: Tensor
    matrix: Tensor | None = None

    @classmethod
    def of(
        cls, features: Tensor, targets: Tensor, projection: int = 0, matrix: Tensor | None = None
    ) -> FeatureSpace | None:
        """From features (n, f) and class indices (n,) of a task; None where they do not vary."""
        from scipy.linalg import eigh  # scipy takes a while to import

        width = features.shape[1] if matrix is None else matrix.shape[1]
        if len(features) < 2 or width > MOST_FEATURES:
            return None
        mean = features.mean(dim=0)
        table = (features - mean).double()
        table = table if matrix is None else table @ matrix.double()
        within = table - class_means(table, targets, int(targets.max()) + 1)[targets]
        examples = len(features) / PSEUDO_EXAMPLES
        both = [shrunk(rows.T @ rows / len(rows), examples).cpu() for rows in (table, within)]
        if not all(each.isfinite().all() and each.trace() > 0 for each in both):
            return None
        values, vectors = eigh(*both)
        variances, rotation = torch.from_numpy(values).to(mean), torch.from_numpy(vectors).to(mean)
        return cls(projection, mean, rotation, variances, matrix)

    @cached_property
    def basis(self) -> Tensor:
        """(f, d)."""
        return self.rotation if self.matrix is None else self.matrix @ self.rotation

    @cached_property
    def inverse(self) -> Tensor:
        """(f, d): what turns weights (K, f) of features into weights of coordinates."""
        return torch.linalg.pinv(self.basis.double()).float().T.contiguous()

    def coordinates(self, features: Tensor) -> Tensor:
        """(n, d)."""
        return (features.float() - self.mean) @ self.basis

    def distances(self, coordinates: Tensor) -> Tensor:
        """(n,) squared distances from the centre of all inputs."""
        return (coordinates.square() / self.variances).sum(dim=1).clamp_min(1e-6)

    def relative(self, away: Tensor, central: Tensor) -> Tensor:
        """(n,) relative distances of inputs: minus twice log p(x | nearest class) / p(x | any).

        - away: (n, K) squared distances from the means of classes.
        - central: (n,) those from the centre of all inputs.
        """
        return away.min(dim=1).values - central - self.variances.log().sum()

    def directions(self, head: Tensor | None, num_classes: int) -> Tensor:
        """(K, d) directions of a head's classes from their mean; zeros without a head (K, f)."""
        if head is None:
            return self.mean.new_zeros(num_classes, len(self.variances))
        towards = head[:num_classes].flatten(1).float() @ self.inverse
        return towards - towards.mean(dim=0)


@dataclass(frozen=True)
class FeatureProfile:
    """A task's knowledge of its inputs in the store's `FeatureSpace`.

    - numbers: (scale, step) of its class means, mean and standard deviation of the relative
      distances of own inputs, the same of the logarithms of their distances from the centre, and
      (a, b) of the limit a + b / √n of the mean score of n own inputs; as float16 holds them.
    - code: the class means, in steps.
    """

    numbers: tuple[float, ...]
    code: bytes

    @classmethod
    def rounded(cls, numbers: Sequence[float] | np.ndarray, code: bytes) -> FeatureProfile:
        """A profile of numbers as a store keeps them."""
        return cls(tuple(np.array(numbers, "<f2").tolist()), code)

    def encode(self) -> bytes:
        """The profile as bytes."""
        return np.array(self.numbers, "<f2").tobytes() + self.code

    @classmethod
    def decode(cls, content: bytes) -> FeatureProfile:
        """The profile of `encode`."""
        return cls.rounded(np.frombuffer(content, "<f2", NUMBERS), content[2 * NUMBERS :])

    def means(self, directions: Tensor) -> Tensor:
        """(K, d) of its classes; directions: of its head, as the space gives them."""
        count, (scale, step) = directions.numel(), self.numbers[:2]
        levels, _ = decode_levels(self.code, [(directions.shape[1],), (count,)])
        common, own = (torch.from_numpy(each).to(directions) for each in levels)
        common = common * (step / (2 * math.sqrt(len(directions))))
        return scale * directions + common + step * own.view_as(directions)

    @property
    def limits(self) -> tuple[float, ...]:
        """(a, b) of the limit of the mean score of own inputs."""
        return self.numbers[6:]

    def scores(self, relative: Tensor, central: Tensor) -> Tensor:
        """(n,) how foreign inputs are by their distances, as `FeatureSpace` gives them.

        Own inputs have about 0 and a standard deviation of 1.
        """
        near_mean, near_spread, far_mean, far_spread = self.numbers[2:6]
        near = (relative - near_mean) / near_spread
        far = (central.log() - far_mean) / far_spread
        return near + FAR * (far.abs() - FREE).clamp_min(0)


def feature_profile(
    space: FeatureSpace,
    features: Tensor,
    targets: Tensor,
    directions: Tensor,
    max_bytes: int = MOST_BYTES,
    is_first: bool = False,
) -> FeatureProfile | None:
    """The profile of a task with features (n, f) and class indices (n,); None for too few of them.

    - directions: (K, d) of its head, zeros without.
    - max_bytes: of the profile.
    - is_first: whether the space was learned from these features.
    """
    coordinates, num_classes = space.coordinates(features), len(directions)
    counts = torch.bincount(targets, minlength=num_classes)
    if len(features) < 2 * num_classes or len(features) < 8:
        return None
    exact = class_means(coordinates, targets, num_classes)
    common = exact.mean(dim=0)
    size = directions.square().sum()
    scale = float(((exact - common) * directions).sum() / size) if size else 0.0
    scale = float(np.float16(scale))
    rest, room = exact - scale * directions, max_bytes - 2 * NUMBERS
    place = bisect_left(STEPS, True, key=lambda step: len(_coded_means(rest, step)) <= room)
    step = float(np.float16(STEPS[min(place, len(STEPS) - 1)]))
    code = _coded_means(rest, step)
    means = FeatureProfile((scale, step), code).means(directions)
    if is_first:
        relative, central = _cross_fitted(space, features, targets, means - exact)
    else:
        away, central = torch.cdist(coordinates, means).square(), space.distances(coordinates)
        # Own inputs are nearer to means that they belong to: leave each one out of its class mean.
        rows = torch.arange(len(targets), device=targets.device)
        left_out = (coordinates - exact[targets]) / (counts[targets] - 1).clamp_min(1)[:, None]
        away[rows, targets] = (coordinates - means[targets] + left_out).square().sum(dim=1)
        relative = space.relative(away, central)
    numbers = [scale, step]
    for each in (relative, central.log()):
        numbers += [float(each.mean()), max(float(each.std()), 1e-3)]
    scores = FeatureProfile.rounded(numbers, code).scores(relative, central)
    profile = FeatureProfile.rounded([*numbers, *limits_of(scores.cpu()).tolist()], code)
    return profile if all(map(math.isfinite, profile.numbers)) else None


def _cross_fitted(
    space: FeatureSpace, features: Tensor, targets: Tensor, errors: Tensor
) -> tuple[Tensor, Tensor]:
    """(n,) relative and central distances of the examples that the space was learned from.

    Each fifth of them in a space learned from the others, which was not made to fit it.

    - errors: (K, d) of the coded class means.
    """
    relative, central = features.new_zeros(len(features)), features.new_zeros(len(features))
    moved = errors @ space.inverse.T
    for fold in range(FOLDS):
        held = torch.arange(len(features), device=features.device) % FOLDS == fold
        part = FeatureSpace.of(features[~held], targets[~held], matrix=space.matrix) or space
        known, seen = part.coordinates(features[~held]), part.coordinates(features[held])
        means = class_means(known, targets[~held], len(errors)) + moved @ part.basis
        central[held] = part.distances(seen)
        relative[held] = space.relative(torch.cdist(seen, means).square(), central[held])
    return relative, central


def profile_share(max_bytes: int | None) -> int:
    """The bytes of a budget that a profile may take."""
    if max_bytes is None:
        return MOST_BYTES
    return min(max(int(SHARE * max_bytes), LEAST_BYTES), MOST_BYTES)


def frozen_features(backbone: Backbone, frozen: TaskView, inputs: Tensor | Inputs) -> Tensor:
    """(n, f) features of the frozen network; `Features` of other networks do not help."""
    if isinstance(inputs, Features) and not frozen.reads(inputs):
        inputs = inputs.inputs
    return frozen.features(backbone, inputs).float()


def head_of(backbone: Backbone, weights: Mapping[str, Tensor]) -> Tensor | None:
    """The weights (K, f) of a task's own head, None without."""
    return None if backbone.own_head is None else weights.get(backbone.own_head.name)


def class_means(table: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """(K, d) means of rows; the mean of all for a class without any."""
    sums = table.new_zeros(num_classes, table.shape[1]).index_add_(0, targets, table)
    counts = torch.bincount(targets, minlength=num_classes)[:, None]
    return torch.where(counts > 0, sums / counts.clamp_min(1), table.mean(dim=0))


def shrunk(covariance: Tensor, examples: float) -> Tensor:
    """A covariance (d, d) mixed with equal variances: their share is d over the examples."""
    width = len(covariance)
    share = min(MOST_SHRINKAGE, width / examples)
    equal = covariance.trace() / width * torch.eye(width).to(covariance)
    return (1 - share) * covariance + share * equal


def _coded_means(means: Tensor, step: float) -> bytes:
    """Class means (K, d) in steps: their mean, finer, and then each one's difference."""
    # Their mean tells other tasks apart better than each one does.
    finer = step / (2 * math.sqrt(len(means)))
    common = (means.mean(dim=0) / finer).round().clamp(-LARGEST, LARGEST)
    own = ((means - common * finer) / step).round().clamp(-LARGEST, LARGEST)
    levels = [each.flatten().cpu().numpy().astype(np.int64) for each in (common, own)]
    return encode_levels(levels)
