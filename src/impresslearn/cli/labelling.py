"""Named inputs with the labels that a task gives them, and how sure it is of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from impresslearn.data import Label
from impresslearn.data.files import NamedInputs
from impresslearn.data.preprocessing import Prepared
from impresslearn.inference import TaskGuess
from impresslearn.learner import ImpressLearner


@dataclass(frozen=True)
class LabelledRows:
    """Inputs as a task sees them: n names, K classes, (n, K) probabilities that add up to 1."""

    task: str
    names: tuple[str, ...]
    classes: tuple[Label, ...]
    probabilities: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> list[Label]:
        """The most likely class of each row."""
        return [self.classes[place] for place in self.probabilities.argmax(axis=1)]

    @property
    def confidences(self) -> list[float]:
        """The probability of that class."""
        return self.probabilities.max(axis=1).tolist()


def label_rows(learner: ImpressLearner, inputs: NamedInputs, task: str) -> LabelledRows:
    """Prepared rows labelled by one task. Raises UnknownTaskError for one never learned."""
    return _rows(learner, inputs, task, learner.logits(Prepared(inputs.inputs), task))


def label_rows_by_guess(
    learner: ImpressLearner, inputs: NamedInputs, guess: TaskGuess
) -> LabelledRows:
    """The same by the best task of a guess, or by the mixture that method "alpha" found."""
    if guess.mixture is None:
        return label_rows(learner, inputs, guess.best)
    logits = guess.mixture.logits(learner.backbone, learner.prepare(Prepared(inputs.inputs)))
    return _rows(learner, inputs, guess.best, logits)


def _rows(learner: ImpressLearner, inputs: NamedInputs, task: str, logits: Tensor) -> LabelledRows:
    classes = learner.tasks_[task].classes
    likely = logits[:, : len(classes)].float().softmax(dim=1).cpu().numpy()
    return LabelledRows(task, inputs.names, classes, likely)
