"""A class map: infers the task of a single input from the features of a pretrained network.

The features f of an input are the input of the frozen network's head. The map describes each class
by a Gaussian with the mean μ of the class. All classes of all tasks share a covariance Σ, to which
each task adds a few directions V in which its inputs vary more. The probability π of a class within
its task is the task's own prediction:

    p(f | class c of task t) = N(f; μ_c, Σ + V_tᵀV_t),    p(f, c | t) = π_c(f) p(f | c)

Features that are never negative, as after a ReLU, are skewed, so the map uses their square roots.
Means are coded in steps of about their standard error.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST, decode_levels, encode_levels
from impresslearn.errors import InputError
from impresslearn.inference.feature_scores import class_means, shrunk

# The step of the means in standard errors, and its largest value in standard deviations of a
# feature given all others.
STEP, MOST_STEP = 1.0, 0.5
DIGITS = 64  # a level is a high digit times this number plus a low digit
# The number of a task's directions, and the fraction of its excess variance there that is used.
DIRECTIONS, DIRECTIONS_WEIGHT = 16, 0.5
PARTS = 4  # directions are coded in this fraction of a step
# Shrinkage of the covariance: this number of pseudo-examples per effective dimension.
PSEUDO_EXAMPLES = 1.5
_NUMBERS = "roots", "count", "worth", "temperature", "own"  # in the first line of a coded map


@dataclass(frozen=True)
class ClassMap:
    """Means of the classes of tasks, and the covariance within classes.

    - roots: whether the map uses the square roots of features.
    - centre: (d,), subtracted from the means before coding.
    - steps: (d,), the steps in which the means are coded.
    - covariance: (d, d) within the classes of all tasks; a store keeps float16 in units of steps.
    - count: the number of examples from which the covariance was computed.
    - codes: task name -> the number of its classes, and its coded means and directions.
    - worth: the number of examples that the shrinkage of the covariance assumes; 0 for `count`.
    - temperature: log likelihoods are divided by it, because means have errors.
    - own: the number of directions per task, and the parts of a step in which they are coded.
    """

    roots: bool
    centre: Tensor
    steps: Tensor
    covariance: Tensor
    count: int
    codes: Mapping[str, tuple[int, bytes]]
    # Maps from older versions lack the following fields and get these defaults.
    worth: float = 0.0
    temperature: float = 4.0
    own: tuple[int, int] = (4, 1)

    def __repr__(self) -> str:
        size = f"{len(self.codes)} tasks, {len(self.centre)} features, {self.nbytes:,} bytes"
        return f"ClassMap({size})"

    @classmethod
    def of(
        cls, tasks: Mapping[str, tuple[Tensor, Tensor]], present: "ClassMap | None" = None
    ) -> "ClassMap":
        """Learns a map, or adds tasks to the `present` map, whose centre and steps it keeps.

        - tasks: name -> features (n, d) and class indices (n,), with an example of every class.
        """
        roots = all(float(features.min()) >= 0 for features, _ in tasks.values())
        scatter, count = torch.zeros((), dtype=torch.float64), 0
        if present is not None:
            roots, count = present.roots, present.count
            scatter = count * present.covariance
        all_means = []
        for name, each in tasks.items():
            means, within = _centred(*each, roots)
            if not within.isfinite().all():
                raise InputError(f"task {name!r}: the features hold NaN or infinite values")
            scatter = scatter + within.T @ within
            count += len(within) - len(means)
            all_means.append(means)
        if count < 1 or not float(scatter.trace()):
            raise InputError("a class map needs classes with two different examples or more")
        covariance = scatter / count
        spreads = torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt()
        share = float(spreads.sum().square() / spreads.square().sum()) / count  # dimensions/count
        worth = len(spreads) / (PSEUDO_EXAMPLES * share)
        precision = shrunk(covariance, worth).inverse()
        if present is None:
            classes = torch.cat(all_means)
            centre = classes.mean(dim=0).half().double()
            free = precision.diagonal().rsqrt()
            steps = min(STEP / math.sqrt(count / len(classes) + 1), MOST_STEP) * free
            steps = steps.half().double().clamp_min(2.0**-24)
            present = cls(roots, centre, steps, free, 0, {}, own=(DIRECTIONS, PARTS))
        codes, factor = dict(present.codes), torch.linalg.cholesky(precision)
        for (name, each), means in zip(tasks.items(), all_means, strict=True):
            own = _directions(_centred(*each, roots)[1], len(means), factor, present.own[0])
            levels = torch.cat([means - present.centre, present.own[1] * own]) / present.steps
            whole = levels.flatten().round().clamp(-DIGITS * LARGEST, DIGITS * LARGEST)
            digits = whole.long().numpy()
            high = (digits + DIGITS // 2) // DIGITS  # mostly 0, which costs next to nothing
            codes[name] = len(means), encode_levels([high, digits - DIGITS * high])
        heat = 1 + share * sum(classes for classes, _ in codes.values())
        extended = replace(present, covariance=covariance, count=count, codes=codes)
        extended = replace(extended, worth=worth, temperature=heat)
        return cls.decode(extended.encode())  # rounded as in the store

    @property
    def nbytes(self) -> int:
        """The number of bytes in a store."""
        return len(self.encode())

    def encode(self) -> bytes:
        """The map as bytes: a line of JSON, three arrays of float16, and the codes."""
        about = {name: getattr(self, name) for name in _NUMBERS} | {
            "features": len(self.centre),
            "codes": {name: [classes, len(code)] for name, (classes, code) in self.codes.items()},
        }
        head = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
        in_steps = self.covariance / torch.outer(self.steps, self.steps)
        upper = in_steps[np.triu_indices(len(self.centre))]
        numbers = torch.cat([self.centre, self.steps, upper]).numpy().astype("<f2").tobytes()
        return b"".join([head, b"\n", numbers, *(code for _, code in self.codes.values())])

    @classmethod
    def decode(cls, content: bytes) -> "ClassMap":
        """The map from the bytes of `encode`."""
        head, _, rest = content.partition(b"\n")
        about = json.loads(head)
        width = about["features"]
        upper = np.triu_indices(width)
        place = 2 * (2 * width + len(upper[0]))
        values = torch.from_numpy(np.frombuffer(rest[:place], "<f2").astype(np.float64))
        centre, steps, entries = values.tensor_split([width, 2 * width])
        in_steps = entries.new_zeros(width, width)
        in_steps[upper] = in_steps.T[upper] = entries
        codes = {}
        for name, (classes, length) in about["codes"].items():
            codes[name] = classes, rest[place : place + length]
            place += length
        covariance = in_steps * torch.outer(steps, steps)
        numbers = {name: about[name] for name in _NUMBERS if name in about}
        return cls(centre=centre, steps=steps, covariance=covariance, codes=codes, **numbers)

    def scores(self, features: Tensor, tasks: Sequence[str]) -> list[Tensor]:
        """(n, K) log p(f | class) / temperature of features (n, d), up to a constant per input."""
        table = _table(features, self.roots) - self.centre
        parts = []
        for task in tasks:
            means, own = self._decoded(task)
            weights = means @ self._precision
            scores = table @ weights.T - (weights * means).sum(dim=1) / 2
            # (Σ + VVᵀ)⁻¹ = Σ⁻¹ - Σ⁻¹V M⁻¹ VᵀΣ⁻¹ with M = 1 + VᵀΣ⁻¹V
            towards = self._precision @ own.T
            inner = torch.eye(len(own), dtype=torch.float64) + own @ towards
            away = (table @ towards)[:, None] - means @ towards
            scores += (away @ inner.inverse() * away).sum(dim=2) / 2
            parts.append((scores - inner.logdet() / 2) / self.temperature)
        return parts

    def _decoded(self, task: str) -> tuple[Tensor, Tensor]:
        """The task's means minus the centre, (K, d), and its directions, (directions, d)."""
        (classes, code), (directions, parts) = self.codes[task], self.own
        shape = ((classes + directions) * len(self.steps),)
        (high, low), _ = decode_levels(code, [shape, shape])
        rows = torch.from_numpy(DIGITS * high + low).view(-1, len(self.steps)) * self.steps
        return rows[:classes], rows[classes:] / parts

    @cached_property
    def _precision(self) -> Tensor:
        return shrunk(self.covariance, self.worth or self.count).inverse()


def _centred(features: Tensor, targets: Tensor, roots: bool) -> tuple[Tensor, Tensor]:
    """Class means (K, d), and features (n, d) minus the mean of their class."""
    table, places = _table(features, roots), targets.cpu()
    means = class_means(table, places, int(places.max()) + 1)
    return means, table - means[places]


def _directions(within: Tensor, classes: int, factor: Tensor, count: int) -> Tensor:
    """The directions V (count, d) in which a task varies more than Σ: its covariance is Σ + VᵀV.

    - within: (n, d), the task's features minus their class means.
    - factor: L with LLᵀ = Σ⁻¹.
    """
    _, sizes, turned = torch.linalg.svd(within @ factor, full_matrices=False)
    variances = sizes.square() / max(len(within) - classes, 1)
    # Few examples vary more in some directions by chance, by about the variance in the next one.
    excess = variances[:count] - variances[count : count + 1].sum().clamp_min(1)
    scaled = (DIRECTIONS_WEIGHT * excess.clamp_min(0)).sqrt()[:, None] * turned[:count]
    own = torch.linalg.solve_triangular(factor, scaled, upper=False, left=False)
    return torch.nn.functional.pad(own, (0, 0, 0, count - len(own)))


def _table(features: Tensor, roots: bool) -> Tensor:
    table = features.double().cpu()
    return table.clamp_min(0).sqrt() if roots else table
