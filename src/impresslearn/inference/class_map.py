"""A class map tells tasks apart by single inputs, in the features of a pretrained network.

Every input has features f, what enters the head of the frozen network. The map keeps the mean μ of
every class, and one covariance Σ within classes, of all tasks. A class explains an input as in
linear discriminant analysis (Fisher 1936), and a task by its classes, which are equally likely:

    log p(f | class c) = f·Σ⁻¹μ_c - μ_c·Σ⁻¹μ_c / 2 + constant
    log p(f | task) = log mean over its classes of p(f | class c)

Labels are still predicted by the task itself. Features that are never negative, as behind a ReLU,
are skewed: the map takes their square roots. Means are coded in steps of about their error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST, MODEL_BYTES, decode_levels, encode_levels
from impresslearn.errors import InputError

# The covariance is mixed with equal variances: their share is the number of features over the
# number of examples, and at most this.
MOST_SHRINKAGE = 0.9
# Step of the means in standard errors, and at most in standard deviations of a feature given all
# others.
STEP, MOST_STEP = 1.0, 0.5
SPARE = 4.0  # times as far from the centre as inputs of the first tasks
# Logarithms of likelihoods are divided by it, since features are not quite Gaussian: on 64, 384 and
# 1,280 features the probabilities of the right tasks were highest at 2, 12 and 6.
TEMPERATURE = 4.0


@dataclass(frozen=True)
class ClassMap:
    """Means of the classes of tasks, and the covariance within classes.

    - roots: whether it takes the square roots of features.
    - centre: (d,) what means are differences from.
    - steps: (d,) of the means.
    - covariance: (d, d) within the classes of all tasks, in units of steps, as float16 holds it.
    - count: the examples behind the covariance.
    - codes: task name -> the number of its classes, and their means, coded.
    """

    roots: bool
    centre: Tensor
    steps: Tensor
    covariance: Tensor
    count: int
    codes: Mapping[str, tuple[int, bytes]]

    def __repr__(self) -> str:
        size = f"{len(self.codes)} tasks, {len(self.centre)} features, {self.nbytes:,} bytes"
        return f"ClassMap({size})"

    @classmethod
    def of(
        cls, tasks: Mapping[str, tuple[Tensor, Tensor]], present: ClassMap | None = None
    ) -> ClassMap:
        """A map of tasks and of those in a present map, whose centre and steps it keeps.

        - tasks: name -> features (n, d) and class indices (n,), with an example of every class.

        Raises InputError for features that are not finite, and if no class has two examples.
        """
        scatter, count, means = torch.zeros(0), 0, dict[str, Tensor]()
        roots = all(float(features.min()) >= 0 for features, _ in tasks.values())
        roots = roots if present is None else present.roots
        for name, (features, targets) in tasks.items():
            table, places = _table(features, roots), targets.cpu()
            if not table.isfinite().all():
                raise InputError(f"task {name!r}: the features hold NaN or infinite values")
            sizes = torch.bincount(places)
            sums = table.new_zeros(len(sizes), table.shape[1]).index_add_(0, places, table)
            means[name] = sums / sizes[:, None]
            within = table - means[name][places]
            product = within.T @ within
            scatter = scatter + product if len(scatter) else product
            count += len(table) - len(sizes)
        if present is not None:
            scatter = scatter + present.count * present._in_features(present.covariance)
            count += present.count
            centre, steps = present.centre.double(), present.steps.double()
        if count < 1 or not float(scatter.trace()):
            raise InputError("a class map needs classes with two different examples or more")
        if present is None:
            classes = torch.cat(list(means.values()))
            centre = classes.mean(dim=0).half().double()
            free = _shrunk(scatter / count, count).inverse().diagonal().rsqrt()
            steps = min(STEP / math.sqrt(count / len(classes) + 1), MOST_STEP) * free
            # Classes of later tasks may lie further out.
            furthest = (classes - centre).abs().amax(dim=0) + (scatter / count).diagonal().sqrt()
            steps = (
                torch.maximum(steps, SPARE * furthest / LARGEST).half().double().clamp_min(2.0**-24)
            )
        codes = {} if present is None else dict(present.codes)
        for name, mean in means.items():
            levels = ((mean - centre) / steps).round().clamp(-LARGEST, LARGEST)
            (model,), stream = encode_levels([levels.flatten().long().numpy()])
            codes[name] = len(mean), model + stream
        covariance = (scatter / count / torch.outer(steps, steps)).half().float()
        return cls(roots, centre.float(), steps.float(), covariance, count, codes)

    def keeping(self, tasks: Collection[str]) -> ClassMap:
        """The map of these tasks alone; the covariance stays."""
        return replace(self, codes={name: self.codes[name] for name in self.codes if name in tasks})

    @property
    def nbytes(self) -> int:
        """Bytes that a store keeps."""
        return len(self.encode())

    def encode(self) -> bytes:
        """The map as bytes: a line of JSON, three arrays of float16, and the codes."""
        about = {
            "roots": self.roots,
            "features": len(self.centre),
            "count": self.count,
            "codes": {name: [classes, len(code)] for name, (classes, code) in self.codes.items()},
        }
        rows, columns = np.triu_indices(len(self.centre))
        arrays = (self.centre, self.steps, self.covariance[rows, columns])
        numbers = [array.numpy().astype("<f2").tobytes() for array in arrays]
        codes = [code for _, code in self.codes.values()]
        head = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
        return b"".join([head, b"\n", *numbers, *codes])

    @classmethod
    def decode(cls, content: bytes) -> ClassMap:
        """The map of `encode`."""
        head, _, rest = content.partition(b"\n")
        about = json.loads(head)
        width = about["features"]
        rows, columns = np.triu_indices(width)
        ends = np.cumsum([width, width, len(rows)])
        values = torch.from_numpy(np.frombuffer(rest[: 2 * ends[-1]], "<f2").astype(np.float32))
        centre, steps, upper = values.tensor_split(ends[:-1].tolist())
        covariance = torch.zeros(width, width)
        covariance[rows, columns] = covariance[columns, rows] = upper
        codes, place = {}, 2 * int(ends[-1])
        for name, (classes, length) in about["codes"].items():
            codes[name] = classes, rest[place : place + length]
            place += length
        return cls(about["roots"], centre, steps, covariance, about["count"], codes)

    def means(self, task: str) -> Tensor:
        """(K, d) the means of a task's classes less the centre, float64."""
        classes, code = self.codes[task]
        shape = (classes * len(self.steps),)
        (levels,) = decode_levels([code[:MODEL_BYTES]], [shape], code[MODEL_BYTES:])
        return torch.from_numpy(levels).view(classes, -1) * self.steps.double()

    def evidence(self, features: Tensor, tasks: Sequence[str]) -> Tensor:
        """(n, T) log p(f | task) / `TEMPERATURE` of features (n, d), less a constant per input."""
        table = _table(features, self.roots) - self.centre
        columns = []
        for task in tasks:
            means = self.means(task)
            weights = means @ self._precision
            scores = table @ weights.T - (weights * means).sum(dim=1) / 2
            columns.append(scores.logsumexp(dim=1) - math.log(len(means)))
        return torch.stack(columns, dim=1) / TEMPERATURE

    @cached_property
    def _precision(self) -> Tensor:
        return _shrunk(self._in_features(self.covariance), self.count).inverse()

    def _in_features(self, covariance: Tensor) -> Tensor:
        """A covariance in units of features, float64."""
        return covariance.double() * torch.outer(self.steps, self.steps).double()


def _table(features: Tensor, roots: bool) -> Tensor:
    table = features.double().cpu()
    return table.clamp_min(0).sqrt() if roots else table


def _shrunk(covariance: Tensor, count: int) -> Tensor:
    width = len(covariance)
    share = min(MOST_SHRINKAGE, width / count)
    equal = covariance.trace() / width * torch.eye(width, dtype=covariance.dtype)
    return (1 - share) * covariance + share * equal
