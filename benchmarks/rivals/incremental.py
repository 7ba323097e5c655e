"""Rivals in class-incremental learning, over features that are computed once.

Each rival learns tasks in turn from `Features`, and predicts among the classes of one task or of
all tasks. The network is always frozen, even for rivals that were published with a network that is
trained. `bytes` counts the float32 numbers needed to predict, `state_bytes` the numbers needed to
learn further tasks: float32, but kept examples int8. Random numbers from a seed do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from impresslearn.coefficients.readout import FEATURE_NORM
from impresslearn.data import Examples, Features

PENALTIES = 10.0 ** np.arange(-8, 9)


class FeatureRival:
    """The base class of the rivals: keeps the classes of tasks, and predicts the largest score.

    Each rival defines `add`, which learns from features (n, f) of new classes, and `scores`, which
    returns (n, K) for all classes. Some keep in `seen` the features and class indices of all tasks.
    """

    def __init__(self) -> None:
        self.classes: list[Any] = []
        self.tasks_: dict[str, range] = {}
        self.seen: list[tuple[Tensor, Tensor]] = []

    def learn_task(self, name: str, data: Examples) -> None:
        """Learns the classes of a task from features (n, f) and labels (n,)."""
        classes, targets = np.unique(data.labels, return_inverse=True)
        first = len(self.classes)
        self.classes += classes.tolist()
        self.tasks_[name] = range(first, len(self.classes))
        self.add(_table(data.inputs), torch.from_numpy(targets + first))

    def predict(self, inputs: Features, task: str | None) -> np.ndarray:
        """Labels (n,) among the task's classes; among all classes if task is None."""
        places = list(range(len(self.classes)) if task is None else self.tasks_[task])
        best = self.scores(_table(inputs))[:, places].argmax(dim=1)
        return np.asarray(self.classes)[np.asarray(places)[best.numpy()]]

    def everything(self) -> tuple[Tensor, Tensor]:
        """The features in `seen` as one table, and their class indices."""
        tables, targets = zip(*self.seen, strict=True)
        return torch.cat(tables), torch.cat(targets)


class NearestMean(FeatureRival):
    """Predicts the class with the nearest mean of features."""

    means: Sequence[Tensor] | Tensor = ()

    def add(self, table: Tensor, targets: Tensor) -> None:
        new = [table[targets == place].mean(dim=0) for place in targets.unique()]
        self.means = torch.stack([*self.means, *new])
        self.bytes = self.state_bytes = 4 * self.means.numel()

    def scores(self, table: Tensor) -> Tensor:
        return -torch.cdist(table, self.means)


class RanPAC(FeatureRival):
    """Ridge regression of one-hot labels on random features max(0, f W) (McDonnell et al. 2023).

    As in the published code, the ridge penalty is the one of `PENALTIES` with the least squared
    error on a held-out fifth of the latest task. There is no adapter.

    - width: the number of random features (10,000 in the paper).
    """

    def __init__(self, width: int = 10_000) -> None:
        super().__init__()
        self.width = width

    def add(self, table: Tensor, targets: Tensor) -> None:
        # Keep examples in place of the Gram matrix of their random features: weights are the same.
        features = self._random(table)
        self.seen.append((features, targets))
        self.bytes = 4 * self.width * len(self.classes)
        self.state_bytes = self.bytes + 2 * self.width * (self.width + 1)  # half of a symmetric one
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))
        held, rest = order[: len(order) // 5], order[len(order) // 5 :]

        def error(penalty: float) -> float:
            guessed = features[held] @ self._solved(features[rest], targets[rest], penalty)
            return float((guessed - F.one_hot(targets, guessed.shape[1])[held]).square().mean())

        self.penalty = min(PENALTIES, key=error)
        self.weights: Tensor | None = None

    def scores(self, table: Tensor) -> Tensor:
        if self.weights is None:
            self.weights = self._solved(*self.everything(), self.penalty)
        return self._random(table) @ self.weights

    def _solved(self, features: Tensor, targets: Tensor, penalty: float) -> Tensor:
        kernel = (features @ features.T).double() + penalty * torch.eye(len(features))
        onehot = F.one_hot(targets, len(self.classes)).double()
        return features.T @ torch.linalg.solve(kernel, onehot).float()

    def _random(self, table: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return (table @ torch.randn(table.shape[1], self.width, generator=generator)).relu()


class JointProbe(FeatureRival):
    """Logistic regression on the examples of all tasks together; it keeps all features.

    Its accuracy is what a linear layer could reach without forgetting.
    """

    def add(self, table: Tensor, targets: Tensor) -> None:
        self.seen.append((_int8(table), targets))
        self.bytes = 4 * len(self.classes) * (table.shape[1] + 1)
        self.state_bytes = self.bytes + sum(each.numel() + 4 * len(each) for each, _ in self.seen)
        self.fitted: LogisticRegression | None = None

    def scores(self, table: Tensor) -> Tensor:
        if self.fitted is None:
            features, targets = self.everything()
            self.scaled = _scaling(features)
            fitted = LogisticRegression(C=0.1, max_iter=300)
            self.fitted = fitted.fit(self.scaled(features), targets)
        return torch.from_numpy(self.fitted.decision_function(self.scaled(table).numpy()))


class FineTunedHead(FeatureRival):
    """A linear head that SGD trains on one task after another, so that it forgets.

    Subclasses add a method against forgetting. Features are centred and scaled by the first task.
    Learning rates and strengths were chosen on other classes of CIFAR-100.
    """

    EPOCHS, BATCH, RATE = 10, 32, 0.003
    head: Tensor | None = None  # (f + 1, K), with the biases
    kept_bytes = 0  # in addition to the head

    def __init__(self) -> None:
        super().__init__()
        self.draws = torch.Generator().manual_seed(0)

    def add(self, table: Tensor, targets: Tensor) -> None:
        if self.head is None:
            self.scaled = _scaling(table)
            self.head = torch.zeros(table.shape[1] + 1, 0)
        self.old, rows = self.head, self._rows(table)
        self.head = F.pad(self.old, (0, len(self.classes) - self.old.shape[1]))
        self.head.requires_grad_(True)
        optimiser = torch.optim.SGD([self.head], lr=self.RATE, momentum=0.9)
        for _ in range(self.EPOCHS):
            for places in torch.randperm(len(rows), generator=self.draws).split(self.BATCH):
                optimiser.zero_grad()
                logits = rows[places] @ self.head
                loss = F.cross_entropy(logits, targets[places]) + self.more(rows[places], logits)
                loss.backward()
                optimiser.step()
        self.head = self.head.detach()
        self.keep(rows, targets)
        self.bytes = 4 * self.head.numel()
        self.state_bytes = self.bytes + self.kept_bytes

    def scores(self, table: Tensor) -> Tensor:
        return self._rows(table) @ self.head

    def more(self, rows: Tensor, logits: Tensor) -> Tensor | float:
        """A term to add to the loss of a batch."""
        return 0.0

    def keep(self, rows: Tensor, targets: Tensor) -> None:
        """Keeps data of this task that later tasks need."""

    def _rows(self, table: Tensor) -> Tensor:
        return F.pad(self.scaled(table), (0, 1), value=1.0)


class EWC(FineTunedHead):
    """EWC (Kirkpatrick et al. 2017), with Fisher information summed as by Schwarz et al. (2018)."""

    STRENGTH = 1000.0
    fisher: Tensor | float = 0.0

    def more(self, rows: Tensor, logits: Tensor) -> Tensor | float:
        change = self.head[:, : self.old.shape[1]] - self.old
        return self.STRENGTH / 2 * (self.fisher * change.square()).sum()

    def keep(self, rows: Tensor, targets: Tensor) -> None:
        # The gradient of an example is the product of its features and its errors.
        errors = (rows @ self.head).softmax(dim=1) - F.one_hot(targets, len(self.classes))
        fisher = rows.square().T @ errors.square() / len(rows)
        fisher[:, : self.old.shape[1]] += self.fisher
        self.fisher, self.kept_bytes = fisher, fisher.nbytes


class LwF(FineTunedHead):
    """LwF (Li and Hoiem 2016): keeps the old classes' former probabilities on new examples."""

    STRENGTH, TEMPERATURE = 10.0, 2.0

    def more(self, rows: Tensor, logits: Tensor) -> Tensor | float:
        known = self.old.shape[1]
        before = (rows @ self.old / self.TEMPERATURE).softmax(dim=1)
        now = (logits[:, :known] / self.TEMPERATURE).log_softmax(dim=1)
        return -self.STRENGTH * (before * now).sum(dim=1).mean() if known else 0.0


class Replay(FineTunedHead):
    """Adds to each batch a batch of kept examples, a uniform sample (Chaudhry et al. 2019)."""

    BUFFER, LABELS, LOGITS = 2000, 10.0, 0.0
    buffer: Sequence[Tensor] = ()  # rows, labels, logits after learning their task, priorities

    def more(self, rows: Tensor, logits: Tensor) -> Tensor | float:
        if not self.buffer:
            return 0.0
        replayed, labels, _, _ = self._drawn()
        loss = self.LABELS * F.cross_entropy(replayed @ self.head, labels)
        if self.LOGITS:  # there are none for later classes
            replayed, _, before, _ = self._drawn()
            known = before.isfinite()
            apart = (replayed @ self.head)[:, : known.shape[1]] - before
            loss = loss + self.LOGITS * apart[known].square().mean()
        return loss

    def keep(self, rows: Tensor, targets: Tensor) -> None:
        priorities = torch.rand(len(rows), generator=self.draws)
        parts = [_int8(rows), targets, _int8(rows @ self.head), priorities]
        if self.buffer:
            known, labels, logits, before = self.buffer
            logits = F.pad(logits, (0, len(self.classes) - logits.shape[1]), value=torch.nan)
            kept = [known, labels, logits, before]
            parts = [torch.cat(both) for both in zip(kept, parts, strict=True)]
        places = parts[3].argsort()[: self.BUFFER]
        self.buffer = [part[places] for part in parts]
        numbers = rows.shape[1] + (len(self.classes) if self.LOGITS else 0)
        self.kept_bytes = len(places) * (numbers + 16)  # two steps, a label and a priority

    def _drawn(self) -> list[Tensor]:
        places = torch.randint(len(self.buffer[1]), (self.BATCH,), generator=self.draws)
        return [part[places] for part in self.buffer]


class DarkReplay(Replay):
    """DER++ (Buzzega et al. 2020): kept examples also keep their former logits."""

    LOGITS = 0.3


INCREMENTAL = {
    "nearest_mean": NearestMean,
    "finetuned_head": FineTunedHead,
    "ewc": EWC,
    "lwf": LwF,
    "replay": Replay,
    "der++": DarkReplay,
    "ranpac": RanPAC,
    "joint": JointProbe,
}
"""Name -> a rival over features."""


def _table(inputs: Any) -> Tensor:
    return inputs.values.float().cpu()


def _int8(rows: Tensor) -> Tensor:
    """Rows as int8 numbers keep them, each with its own step."""
    steps = rows.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
    return (rows / steps).round() * steps


def _scaling(table: Tensor) -> Callable[[Tensor], Tensor]:
    """A function that centres and scales features for a linear head, by the features in `table`."""
    mean = table.mean(dim=0)
    scale = FEATURE_NORM / (table - mean).square().sum(dim=1).mean().sqrt()
    return lambda features: (features - mean) * scale
