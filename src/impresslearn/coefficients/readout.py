"""Readouts: a linear layer over the features that the network gives under each mask of a bank.

The features f_t(x) are the inputs of the network's head under mask t, and logits = Σ_t H_t f_t(x) +
b. So a readout is a sum of networks with different masks and heads. H is found by multinomial
logistic regression, a convex problem, over the features or over a `Projection` of them. Then H is
rounded to multiples of a step, chosen to minimise loss plus price of the code. Weights are
rounded by groups of features: the weights of a later group compensate earlier groups' errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients import coding
from impresslearn.coefficients.coding import LARGEST, coded_bits, nearest_steps
from impresslearn.coefficients.deltas import head_layouts
from impresslearn.coefficients.parametrisation import (
    Coefficients,
    CoefficientSpec,
    Parametrisation,
    grouped,
    register_parametrisation,
)
from impresslearn.coefficients.quantisation import Grid, Grids, TensorLayout
from impresslearn.errors import InputError
from impresslearn.networks import Backbone

FEATURE_NORM = 8.0  # features are scaled to this root mean squared length before the regression
C = 0.1  # the inverse strength of the L2 penalty on weights of the scaled features
# Components are divided by their variance to this power; 0.5 would make all variances equal.
WHITENING = 0.25
COMPONENTS = 256  # size of the projection that the first large task makes for all tasks
STEPS = 2.0 ** np.arange(-3, 7)  # steps to try, in units of the weights' root mean square
FINE_STEPS = 2.0 ** np.arange(-0.875, 0.5, 0.125)  # then tried around the best step
# With at least this many examples per class and bits per weight, features are better than their
# projection. Features under masks are many and alike, and need more bits.
ENOUGH_EXAMPLES, ENOUGH_BITS, ENOUGH_UNDER_MASKS = 10, 0.5, 1.0
GROUPS = 8  # groups of features, whose weights are rounded one after another
BIAS_STEP = 1 / 16
MOST_DECOMPOSED = 4096  # with more features a randomised method finds the components
UNSUITED = "are too large, or differ too little, to be kept in 16 bits; scale the inputs"


@dataclass(frozen=True)
class Readout(Parametrisation):
    """A linear head over features: weights (features, K), and perhaps a bias (K,).

    - num_features: the number of features, or of components, that the readout reads.
    - projection: the number that its `Projection` has in the store; 0 for the features themselves.
    - residual: whether features of the unmasked network are included, before those under masks.
    """

    num_features: int = 0
    projection: int = 0
    residual: bool = False

    kind = "readout"
    uses_masks = True
    is_readout = True

    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        return head_layouts(backbone, self.kind, self.num_features, num_classes)


def _made(spec: CoefficientSpec) -> Readout:
    if spec.output_scale or spec.tune:
        raise InputError("a readout changes no weights; leave out output_scale and tune")
    return Readout(residual=spec.residual)


register_parametrisation(Readout, {"readout": _made})


@dataclass(frozen=True)
class Projection:
    """A map from features to their principal components, partly whitened, which readouts use.

    - num_masks: the number of masks, from the start of the bank, under which features are computed.
    - residual: whether features of the unmasked network are included, before those under masks.
    - matrix: (features, components), rounded to float16.
    """

    num_masks: int
    residual: bool
    matrix: Tensor

    @classmethod
    def of(cls, features: Tensor, dimensions: int, num_masks: int, residual: bool) -> "Projection":
        """Finds at most `dimensions` components of features (n, f), n >= 2."""
        from sklearn.decomposition import PCA  # sklearn takes a second to import

        most = min(dimensions, *features.shape)
        solver = "covariance_eigh" if features.shape[1] <= MOST_DECOMPOSED else "randomized"
        table = _table(features)
        if not table.std(axis=0).any():
            raise InputError("the features of all these inputs are the same; give other inputs")
        pca = PCA(most, svd_solver=solver, random_state=0).fit(table)
        used = pca.explained_variance_ > 1e-9 * pca.explained_variance_[0]
        variances = pca.explained_variance_[used]
        matrix = pca.components_[used].T * variances**-WHITENING
        matrix *= FEATURE_NORM / math.sqrt((variances ** (1 - 2 * WHITENING)).sum())
        rounded = torch.from_numpy(matrix).half().float().contiguous()
        if np.abs(matrix).max() < 2.0**-18 or not rounded.isfinite().all():
            raise InputError(f"the features of these inputs {UNSUITED}")
        return cls(num_masks, residual, rounded)


def without_head(coefficients: Coefficients) -> Coefficients | None:
    """A task's numbers without its readout or head; None if nothing else is left."""
    left = [n for n, part in enumerate(coefficients.parts) if part.kind not in ("head", "readout")]
    parts = tuple(coefficients.parts[n] for n in left)
    numbers = tuple(coefficients.numbers[n] for n in left)
    grids = grouped(coefficients.grids or (), coefficients.numbers)
    kept = tuple(chain.from_iterable(grids[n] for n in left)) or None
    return Coefficients(parts, numbers, coefficients.num_masks, kept) if parts else None


def over_features(numbers: Sequence[Tensor], projection: Projection | None) -> list[Tensor]:
    """A readout as weights (f, K) over unprojected features, and perhaps its bias (K,)."""
    weights, *bias = numbers
    if projection is not None:  # a readout may use only the leading components
        weights = projection.matrix[:, : len(weights)].to(weights.device) @ weights
    return [weights, *bias]


class ReadoutFit:
    """A readout that is fitted to examples once and can then be rounded to any number of bits.

    - features, targets: (n, f) and class indices (n,).
    - projection: maps features to components; None fits the features themselves.
    - has_bias: whether the readout has a bias.
    - max_bits: approximate limit on the bits of all weights. A projection loses information, so it
      is not used if there are enough examples and bits for the features themselves.

    Raises InputError for features that are not finite.
    """

    def __init__(
        self,
        features: Tensor,
        targets: Tensor,
        num_classes: int,
        *,
        projection: Projection | None,
        has_bias: bool,
        max_bits: float = math.inf,
    ) -> None:
        matrix = None
        if projection is not None:
            matrix, masks = projection.matrix, projection.num_masks
            least = len(matrix) * num_classes * (ENOUGH_UNDER_MASKS if masks else ENOUGH_BITS)
            enough = len(targets) >= ENOUGH_EXAMPLES * num_classes and least <= max_bits < math.inf
            if enough and matrix.shape[0] > matrix.shape[1]:
                matrix = None
        self._targets, self._classes, self._has_bias = targets, num_classes, has_bias
        self.is_projected = matrix is not None
        self._table = _table(features if matrix is None else features @ matrix)

    def exact(self) -> tuple[Tensor, ...]:
        """The weights (f, K), and perhaps a bias (K,), without rounding."""
        fitted = self._regression(1)
        weights = fitted.scale * fitted.weights
        return self._tensors(weights, fitted.shift - fitted.mean @ weights)

    def rounded(
        self, bit_price: float, max_bits: float = math.inf
    ) -> tuple[tuple[Tensor, ...], Grids]:
        """Rounded weights (at most about max_bits), perhaps a bias, and their grids."""
        tried = [(*fitted.rounded(bit_price, max_bits), fitted) for fitted in self._fits]
        _, step, levels, fitted = min(tried, key=lambda each: each[0])
        weights, grids = step * levels, [Grid(step, 0.0)]
        shift = fitted.shift - fitted.mean @ weights
        if self._has_bias:
            shift -= np.median(shift)  # adding a constant to all logits changes no prediction
            unit = max(BIAS_STEP, np.abs(shift).max() / LARGEST)
            if unit > 2.0:  # nats: a coarser step of the bias is useless
                line = "the network's features vary too little about a large mean"
                raise InputError(f"{line} to be coded; standardise the inputs")
            unit = float(nearest_steps(unit))
            shift = unit * np.clip(np.round(shift / unit), -LARGEST, LARGEST)
            grids.append(Grid(unit, 0.0))
        return self._tensors(weights, shift), tuple(grids)

    def _tensors(self, weights: np.ndarray, shift: np.ndarray) -> tuple[Tensor, ...]:
        arrays = (weights, shift) if self._has_bias else (weights,)
        return tuple(torch.from_numpy(array.astype(np.float32)) for array in arrays)

    @cached_property
    def _fits(self) -> "list[Regression]":
        # Components are sorted by importance: the first half, quarter or eighth may be enough.
        return [self._regression(part) for part in ((1, 2, 4, 8) if self.is_projected else (1,))]

    def _regression(self, part: int) -> "Regression":
        table = self._table[:, : max(1, self._table.shape[1] // part)]
        return Regression(table, self._targets.cpu().numpy(), self._classes, self._has_bias)


class Regression:
    """The best weights (f, K) and bias `shift` (K,) for features (n, f), centred and scaled.

    The bias is 0 without `has_bias`.
    """

    def __init__(
        self, table: np.ndarray, targets: np.ndarray, classes: int, has_bias: bool
    ) -> None:
        self.targets, self.tried = targets, dict[float, tuple[np.ndarray, ...]]()
        self.mean = table.mean(axis=0) if has_bias else np.zeros(table.shape[1])
        self.features = table - self.mean
        length = math.sqrt((self.features**2).sum(axis=1).mean())
        self.scale = FEATURE_NORM / length if length else 1.0
        self.features *= self.scale
        seen = np.unique(targets)
        self.weights, self.shift = np.zeros((table.shape[1], classes)), np.zeros(classes)
        self.weights[:, seen], known = _regressed(self.features, targets[:, None] == seen, has_bias)
        if has_bias:
            self.shift[:] = known.min() - FEATURE_NORM  # classes without examples never win
            self.shift[seen] = known

    def rounded(
        self, bit_price: float, max_bits: float
    ) -> tuple[tuple[float, float], float, np.ndarray]:
        """At the best step: (bits above max_bits, loss plus price in nats), the step, integers."""
        step = self.scale * (math.sqrt((self.weights**2).mean()) or 1.0)
        if not coding.SMALLEST_STEP <= step <= coding.LARGEST_STEP:
            raise InputError(f"the features of these examples {UNSUITED}")
        for factors in (STEPS, FINE_STEPS):
            if step not in self.tried:
                self.tried[step] = self._rounded(step * factors)
            steps, levels, bits, losses = self.tried[step]
            above, costs = np.maximum(bits - max_bits, 0), losses + bit_price * math.log(2) * bits
            best = np.lexsort((costs, above))[0]
            step = float(steps[best])
        return (above[best], costs[best]), step, levels[best]

    @cached_property
    def _groups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The features (m, f) and gains (f, m) of each group. Subtracting gains @ errors from the
        group's weights compensates for the errors (m, K) of earlier groups.

        Features are scaled so that squared errors approximate the loss to second order. Each
        example's curvature is averaged over classes.
        """
        odds = torch.from_numpy(self.features @ self.weights + self.shift).softmax(1).numpy()
        table = self.features * np.sqrt((odds * (1 - odds)).mean(axis=1, keepdims=True))
        if len(table) > table.shape[1]:
            table = np.linalg.qr(table, mode="r")  # fewer rows, the same second moments
        inverse = C * np.eye(len(table))
        groups: list[tuple[np.ndarray, np.ndarray]] = []
        # From the last group to the first: only later groups can compensate the errors of a group.
        for group in reversed(np.array_split(table, GROUPS, axis=1)):
            seen = inverse @ group
            gains = np.linalg.solve(np.eye(group.shape[1]) + group.T @ seen, seen.T)
            inverse -= seen @ gains
            groups.insert(0, (group, gains))
        return groups

    def _rounded(self, steps: np.ndarray) -> tuple[np.ndarray, ...]:
        """For all steps: the steps as stored (s,), integers (s, f, K), bits (s,), losses (s,)."""
        steps = nearest_steps(steps).astype(np.float64)
        units = steps[:, None, None] / self.scale
        parts, errors = [], np.zeros((len(steps), len(self._groups[0][0]), self.weights.shape[1]))
        exact = np.array_split(self.weights, GROUPS)
        for weights, (group, gains) in zip(exact, self._groups, strict=True):
            parts.append(np.clip(np.rint((weights - gains @ errors) / units), -LARGEST, LARGEST))
            errors += group @ (units * parts[-1] - weights)
        levels = np.concatenate(parts, axis=1)
        logits = self.features @ (units * levels) + self.shift
        right = logits[:, np.arange(len(self.targets)), self.targets]
        losses = (torch.from_numpy(logits).logsumexp(2).numpy() - right).sum(axis=1)
        losses += ((units * levels) ** 2).sum(axis=(1, 2)) / (2 * C)
        levels = levels.astype(np.int64)
        return steps, levels, np.array([coded_bits(each) for each in levels]), losses


def _regressed(
    table: np.ndarray, is_right: np.ndarray, has_bias: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The optimal weights (f, K) and bias (K,) for features (n, f); is_right: one-hot (n, K).

    The objective is the one of scikit-learn's LogisticRegression. SciPy minimises it directly,
    because scikit-learn's checks take longer than a small task.
    """
    from scipy.optimize import minimize  # scipy takes a while to import

    width, count = table.shape[1], is_right.shape[1]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss over examples, and its gradient."""
        weights, shift = np.split(flat.reshape(-1, count), [width])
        logits = table @ weights
        if has_bias:
            logits += shift
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        total = odds.sum(axis=1, keepdims=True)
        loss = np.log(total).sum() - logits[is_right].sum() + (weights**2).sum() / (2 * C)
        errors = odds / total - is_right
        gradients = [table.T @ errors + weights / C]
        if has_bias:
            gradients.append(errors.sum(axis=0, keepdims=True))
        return loss / len(table), np.concatenate(gradients).ravel() / len(table)

    options = {"maxiter": 1000, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    start = np.zeros((width + has_bias) * count)
    solved = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    weights, shift = np.split(solved.reshape(-1, count), [width])
    return weights, shift.ravel()


def _table(features: Tensor) -> np.ndarray:
    """Features as float64. Raises InputError for NaN and infinite ones."""
    table = features.cpu().double().numpy()
    if not np.isfinite(table).all():
        raise InputError("the network's features hold NaN or infinite values; scale the inputs")
    return table
