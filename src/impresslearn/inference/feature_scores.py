"""Recognises a task's inputs by their features in a pretrained network.

A store keeps one `FeatureSpace`: coordinates in which the classes of its first task have unit
variance. There a task keeps the coded means of its classes. Its head already points in about their
directions, so only the difference from these directions is coded.

The score of how foreign an input is has two parts. *near* is the relative Mahalanobis distance (Ren
et al. 2021): the distance from the nearest class mean, compared with the distance from the centre
of all inputs. *far* grows if the distance from the centre is larger or smaller than usual (smaller
for noise, which excites few features).
"""

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

MOST_FEATURES = 512  # the most features, after the projection if there is one
LEAST_EXAMPLES = 50
# Shrinkage of covariances towards equal variances: the number of pseudo-examples per dimension, and
# the largest weight. Classes of other tasks vary in other directions than the first task's.
PSEUDO_EXAMPLES, MOST_SHRINKAGE = 2.0, 0.9
# Steps of the means to try, in standard deviations of a class. The first one that fits is used.
STEPS = tuple(2 ** (quarter / 4) for quarter in range(-4, 17))
# A profile takes this fraction of a task's budget, within the two limits in bytes.
SHARE, LEAST_BYTES, MOST_BYTES = 1 / 6, 36, 128
# "far" is 0 up to FREE standard deviations of the task's inputs; each further one counts FAR.
FREE, FAR = 2.0, 2.0
NUMBERS = 8
FOLDS = 5


@dataclass(frozen=True)
class FeatureSpace:
    """Coordinates (features - mean) · basis of features (n, f) of the frozen network.

    - projection: the number in the store of the `Projection` that comes first; 0 for none.
    - mean: (f,), the mean of the first task's features.
    - rotation: (p, d), from projected features to coordinates.
    - variances: (d,), variances of the coordinates over all inputs; within a class they are 1.
    - matrix: (f, p), the matrix of the projection, or None.
    """

    projection: int
    mean: Tensor
    rotation: Tensor
    variances: Tensor
    matrix: Tensor | None = None

    @classmethod
    def of(
        cls, features: Tensor, targets: Tensor, projection: int = 0, matrix: Tensor | None = None
    ) -> "FeatureSpace | None":
        """The space of a task's features (n, f) with class indices (n,); None if they are equal."""
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
        """(f, d), from features to coordinates."""
        return self.rotation if self.matrix is None else self.matrix @ self.rotation

    @cached_property
    def inverse(self) -> Tensor:
        """(f, d): turns weights (K, f) over features into weights over coordinates."""
        return torch.linalg.pinv(self.basis.double()).float().T.contiguous()

    def coordinates(self, features: Tensor) -> Tensor:
        """The coordinates (n, d) of features (n, f)."""
        return (features.float() - self.mean) @ self.basis

    def distances(self, coordinates: Tensor) -> Tensor:
        """(n,) squared distances from the centre of all inputs."""
        return (coordinates.square() / self.variances).sum(dim=1).clamp_min(1e-6)

    def relative(self, away: Tensor, central: Tensor) -> Tensor:
        """(n,) relative distances of inputs: -2 log (p(x | nearest class) / p(x | any class)).

        - away: (n, K), squared distances from the means of classes.
        - central: (n,), squared distances from the centre of all inputs.
        """
        return away.min(dim=1).values - central - self.variances.log().sum()

    def directions(self, head: Tensor | None, num_classes: int) -> Tensor:
        """(K, d) directions of a head's (K, f) classes from their mean; zeros without a head."""
        if head is None:
            return self.mean.new_zeros(num_classes, len(self.variances))
        towards = head[:num_classes].flatten(1).float() @ self.inverse
        return towards - towards.mean(dim=0)


@dataclass(frozen=True)
class FeatureProfile:
    """Statistics of a task's own inputs in the store's `FeatureSpace`.

    - numbers: eight float16 values: scale and step of the class means; mean and standard deviation
      of the inputs' relative distances; the same of the logarithms of their distances from the
      centre; and a and b of the limit a + b / √n on the mean score of n inputs.
    - code: the coded class means, in steps.
    """

    numbers: tuple[float, ...]
    code: bytes

    @classmethod
    def rounded(cls, numbers: Sequence[float] | np.ndarray, code: bytes) -> "FeatureProfile":
        """A profile with the numbers rounded as in the store."""
        return cls(tuple(np.array(numbers, "<f2").tolist()), code)

    def encode(self) -> bytes:
        return np.array(self.numbers, "<f2").tobytes() + self.code

    @classmethod
    def decode(cls, content: bytes) -> "FeatureProfile":
        return cls.rounded(np.frombuffer(content, "<f2", NUMBERS), content[2 * NUMBERS :])

    def means(self, directions: Tensor) -> Tensor:
        """(K, d) means of the classes; directions: of the task's head, from the space."""
        count, (scale, step) = directions.numel(), self.numbers[:2]
        levels, _ = decode_levels(self.code, [(directions.shape[1],), (count,)])
        common, own = (torch.from_numpy(each).to(directions) for each in levels)
        common = common * (step / (2 * math.sqrt(len(directions))))
        return scale * directions + common + step * own.view_as(directions)

    def means_of(
        self, space: FeatureSpace, backbone: Backbone, weights: Mapping[str, Tensor], classes: int
    ) -> Tensor:
        """(K, d) means of the classes of a task with these weights."""
        return self.means(space.directions(head_of(backbone, weights), classes))

    @property
    def limits(self) -> tuple[float, ...]:
        """(a, b) of the limit a + b / √n on the mean score of n own inputs."""
        return self.numbers[6:]

    def scores(self, relative: Tensor, central: Tensor) -> Tensor:
        """(n,) scores of how foreign inputs are, from their distances by `FeatureSpace`.

        The task's own inputs have scores of about 0 with standard deviation 1.
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
    """The profile of a task with features (n, f) and class indices (n,); None for too few inputs.

    - directions: (K, d) of its head; zeros without a head.
    - max_bytes: the most bytes of the profile.
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
        relative, unfitted, central = _cross_fitted(space, features, targets, means - exact)
    else:
        central = space.distances(coordinates)
        # An example is nearer to a mean that includes it, so leave each out of its class mean.
        seen = counts[targets, None]
        own = (coordinates - exact[targets]) * seen / (seen - 1).clamp_min(1)
        away = torch.cdist(coordinates, means).square()
        relative, unfitted = _relative(space, away, central, own, means - exact, targets)
    numbers = [scale, step]
    for each in (relative, central.log()):
        numbers += [float(each.mean()), max(float(each.std()), 1e-3)]
    scores = FeatureProfile.rounded(numbers, code).scores(unfitted, central)
    profile = FeatureProfile.rounded([*numbers, *limits_of(scores.cpu()).tolist()], code)
    return profile if all(map(math.isfinite, profile.numbers)) else None


def _relative(
    space: FeatureSpace, away: Tensor, central: Tensor, own: Tensor, errors: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """(n,) relative distances of a task's own examples, and these as if its head were not fitted.

    A head is fitted to its examples, so the means coded by it are nearer to those far from their
    class than to new inputs. The second distances pair each error with another example.

    - away: (n, K), squared distances from the coded means; those of the own class are replaced.
    - own: (n, d), from the exact mean of the own class without the example to the example.
    - errors: (K, d), the errors of the coded class means.
    """
    rows = torch.arange(len(targets), device=targets.device)
    fixed, both = (own.square() + errors[targets].square()).sum(dim=1), []
    for paired in (own, own.roll(1, dims=0)):
        away[rows, targets] = fixed - 2 * (paired * errors[targets]).sum(dim=1)
        both.append(space.relative(away, central))
    return both[0], both[1]


def _cross_fitted(
    space: FeatureSpace, features: Tensor, targets: Tensor, errors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(n,) distances of the examples that the space was learned from: both relative, and central.

    Each fifth of the examples is measured in a space learned from the other four.

    - errors: (K, d), the errors of the coded class means.
    """
    measured = features.new_zeros(3, len(features))
    moved = errors @ space.inverse.T
    by_class = targets.argsort(stable=True)  # so that each fold has examples of each class
    for fold in range(FOLDS):
        held = torch.zeros_like(targets, dtype=torch.bool)
        held[by_class[fold::FOLDS]] = True
        part = FeatureSpace.of(features[~held], targets[~held], matrix=space.matrix) or space
        known, seen = part.coordinates(features[~held]), part.coordinates(features[held])
        exact, moves = class_means(known, targets[~held], len(errors)), moved @ part.basis
        central, own = part.distances(seen), seen - exact[targets[held]]
        away = torch.cdist(seen, exact + moves).square()
        relative = _relative(space, away, central, own, moves, targets[held])
        measured[:, held] = torch.stack([*relative, central])
    relative, unfitted, central = measured
    return relative, unfitted, central


def profile_share(max_bytes: int | None) -> int:
    """The number of bytes of a budget that a profile may take."""
    if max_bytes is None:
        return MOST_BYTES
    return min(max(int(SHARE * max_bytes), LEAST_BYTES), MOST_BYTES)


def frozen_features(backbone: Backbone, frozen: TaskView, inputs: Tensor | Inputs) -> Tensor:
    """(n, f) features of the frozen network, computed unless the inputs already have them."""
    if isinstance(inputs, Features) and not frozen.reads(inputs):
        inputs = inputs.inputs
    return frozen.features(backbone, inputs).float()


def head_of(backbone: Backbone, weights: Mapping[str, Tensor]) -> Tensor | None:
    """The weights (K, f) of a task's own head, or None."""
    return None if backbone.own_head is None else weights.get(backbone.own_head.name)


def class_means(table: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """(K, d) means of the rows of each class; for a class without rows, the mean of all rows."""
    sums = table.new_zeros(num_classes, table.shape[1]).index_add_(0, targets, table)
    counts = torch.bincount(targets, minlength=num_classes)[:, None]
    return torch.where(counts > 0, sums / counts.clamp_min(1), table.mean(dim=0))


def shrunk(covariance: Tensor, examples: float) -> Tensor:
    """A covariance (d, d) mixed with equal variances, which have weight d / examples (max. 0.9)."""
    width = len(covariance)
    share = min(MOST_SHRINKAGE, width / examples)
    equal = covariance.trace() / width * torch.eye(width).to(covariance)
    return (1 - share) * covariance + share * equal


def _coded_means(means: Tensor, step: float) -> bytes:
    """Class means (K, d) as bytes: the mean of all in finer steps, then the differences from it."""
    # The common mean is coded finer because it separates tasks better than a single mean.
    finer = step / (2 * math.sqrt(len(means)))
    common = (means.mean(dim=0) / finer).round().clamp(-LARGEST, LARGEST)
    own = ((means - common * finer) / step).round().clamp(-LARGEST, LARGEST)
    levels = [each.flatten().cpu().numpy().astype(np.int64) for each in (common, own)]
    return encode_levels(levels)
