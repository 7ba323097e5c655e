"""Rivals of class-incremental learning over features that are computed once.

Each learns tasks in turn from `Features` and predicts among the classes of a task, or of all.
`state_bytes` counts the float32 numbers that it keeps to learn on, `bytes` those that it predicts
with; random numbers that a seed draws again do not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from impresslearn.data import Examples, Features

PENALTIES = 10.0 ** np.arange(-5, 1)


class FeatureRival:
    """What the rivals share: the classes of tasks, and labels by the largest score."""

    def __init__(self) -> None:
        self.classes: list[Any] = []
        self.tasks_: dict[str, range] = {}

    def learn_task(self, name: str, data: Examples) -> None:
        """Learns the classes of a task from features (n, f) and labels (n,)."""
        classes, targets = np.unique(data.labels, return_inverse=True)
        first = len(self.classes)
        self.classes += classes.tolist()
        self.tasks_[name] = range(first, len(self.classes))
        self.add(_table(data.inputs), torch.from_numpy(targets + first))

    def predict(self, inputs: Features, task: str | None) -> np.ndarray:
        """Labels (n,), of all classes without a task."""
        places = list(range(len(self.classes)) if task is None else self.tasks_[task])
        best = self.scores(_table(inputs))[:, places].argmax(dim=1)
        return np.asarray(self.classes)[np.asarray(places)[best.numpy()]]

    def add(self, table: Tensor, targets: Tensor) -> None:
        """Learns from features (n, f) of new classes."""
        raise NotImplementedError

    def scores(self, table: Tensor) -> Tensor:
        """(n, K) of all classes."""
        raise NotImplementedError


class NearestMean(FeatureRival):
    """The class with the nearest mean of features."""

    def __init__(self) -> None:
        super().__init__()
        self.means = torch.zeros(0)

    def add(self, table: Tensor, targets: Tensor) -> None:
        new = [table[targets == place].mean(dim=0) for place in targets.unique()]
        self.means = torch.stack([*self.means, *new])
        self.bytes = self.state_bytes = 4 * self.means.numel()

    def scores(self, table: Tensor) -> Tensor:
        return -torch.cdist(table, self.means)


class RanPAC(FeatureRival):
    """Ridge regression of one-hot labels on random features max(0, f W) (McDonnell et al. 2023).

    The penalty, a share of the mean squared length, is the best on the fifth of all examples that
    is held out; published code chooses it so for each task. No adapter is trained first.

    - width: random features (10,000 as published).
    """

    def __init__(self, width: int = 10_000) -> None:
        super().__init__()
        self.width = width
        self.seen: list[tuple[Tensor, Tensor]] = []

    def add(self, table: Tensor, targets: Tensor) -> None:
        # Examples stand for the Gram matrix of their random features, which gives the same weights.
        self.seen.append((self._random(table), targets))
        self.bytes = 4 * self.width * len(self.classes)
        self.state_bytes = self.bytes + 4 * self.width**2
        self.weights: Tensor | None = None

    def scores(self, table: Tensor) -> Tensor:
        if self.weights is None:
            features, targets = (torch.cat(each) for each in zip(*self.seen, strict=True))
            onehot = torch.nn.functional.one_hot(targets, len(self.classes)).float()
            kernel = features @ features.T
            order = torch.randperm(len(kernel), generator=torch.Generator().manual_seed(0))
            held, rest = order[: len(order) // 5], order[len(order) // 5 :]

            def solved(rows: Tensor, penalty: float) -> Tensor:
                inner = kernel[rows][:, rows].double()
                ridge = penalty * inner.trace() / len(inner) * torch.eye(len(inner))
                factor = torch.linalg.cholesky(inner + ridge)
                return torch.cholesky_solve(onehot[rows].double(), factor).float()

            def error(penalty: float) -> float:
                guessed = kernel[held][:, rest] @ solved(rest, penalty)
                return float((guessed - onehot[held]).square().mean())

            everything = torch.arange(len(kernel))
            self.weights = features.T @ solved(everything, min(PENALTIES, key=error))
        return self._random(table) @ self.weights

    def _random(self, table: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return (table @ torch.randn(table.shape[1], self.width, generator=generator)).relu()


class JointProbe(FeatureRival):
    """Logistic regression on the examples of all tasks together, which keeps all features.

    A rival that forgets nothing could reach its accuracy with a linear layer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Tensor, Tensor]] = []

    def add(self, table: Tensor, targets: Tensor) -> None:
        self.seen.append((table, targets))
        self.bytes = 4 * len(self.classes) * (table.shape[1] + 1)
        self.state_bytes = self.bytes + 4 * sum(table.numel() for table, _ in self.seen)
        self.fitted: LogisticRegression | None = None

    def scores(self, table: Tensor) -> Tensor:
        if self.fitted is None:
            features, targets = (torch.cat(each) for each in zip(*self.seen, strict=True))
            self.mean = features.mean(dim=0)
            # As readouts scale features: mean squared length 64 and C = 0.1.
            self.scale = 8 / (features - self.mean).square().sum(dim=1).mean().sqrt()
            scaled = (features - self.mean) * self.scale
            self.fitted = LogisticRegression(C=0.1, max_iter=300).fit(scaled, targets)
        scaled = (table - self.mean) * self.scale
        return torch.from_numpy(self.fitted.decision_function(scaled.numpy()))


INCREMENTAL = {"nearest_mean": NearestMean, "ranpac": RanPAC, "joint": JointProbe}
"""Name -> a rival over features."""


def _table(inputs: Any) -> Tensor:
    return inputs.values.float().cpu()
