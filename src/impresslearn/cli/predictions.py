"""Predicted labels of named inputs, and guessed tasks, for people and for machines.

Imports nothing heavy, as the commands do at their top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from impresslearn.cli.output import say

if TYPE_CHECKING:
    import numpy as np

    from impresslearn.data import Label
    from impresslearn.data.files import NamedInputs
    from impresslearn.inference import TaskGuess
    from impresslearn.learner import ImpressLearner


@dataclass(frozen=True)
class Predictions:
    """What a task says of n inputs: their names, K classes, (n, K) probabilities."""

    task: str
    names: tuple[str, ...]
    classes: tuple[Label, ...]
    probabilities: np.ndarray

    def rows(self, proba: bool = False) -> list[dict[str, Any]]:
        """Plain values; probabilities are in the order of the classes."""
        told = []
        for name, likely in zip(self.names, self.probabilities, strict=True):
            row = {
                "name": name,
                "label": self.classes[likely.argmax()],
                "confidence": round(float(likely.max()), 6),
            }
            if proba:
                row["probabilities"] = [round(value, 6) for value in likely.tolist()]
            told.append(row)
        return told

    def show(self, proba: bool = False) -> None:
        """A line an input: name, label, confidence, and if asked for every class's probability."""
        for row in self.rows(proba):
            cells = [row["name"], str(row["label"]), f"{row['confidence']:.4f}"]
            likely = zip(self.classes, row.get("probabilities", ()), strict=proba)
            say(*cells, *(f"{each}={value:.4f}" for each, value in likely))


def predict_named(
    learner: ImpressLearner, inputs: NamedInputs, task: str, guess: TaskGuess | None = None
) -> Predictions:
    """Prepared inputs labelled by a task, or by the mixture of masks that method "alpha" guessed.

    Raises UnknownTaskError for a task that was never learned.
    """
    from impresslearn.data import Prepared

    prepared = Prepared(inputs.inputs)
    if guess is None or guess.mixture is None:
        logits = learner.logits(prepared, task)
    else:
        logits = guess.mixture.logits(learner.backbone, learner.prepare(prepared))
    classes = learner.tasks_[task].classes
    likely = logits[:, : len(classes)].float().softmax(dim=1).cpu().numpy()
    return Predictions(task, inputs.names, classes, likely)


def plain_guess(guess: TaskGuess, best: int = 5) -> dict[str, Any]:
    """What a task inference found as plain values, its likeliest tasks first."""
    ranked = sorted(guess.posterior.items(), key=lambda item: -item[1])[:best]
    return {
        "task": guess.task,
        "best": guess.best,
        "unknown": guess.unknown,
        "unknown_probability": round(guess.unknown_probability, 6),
        "entropy": round(guess.entropy, 6),
        "margin": round(guess.margin, 6),
        "method": guess.method,
        "posterior": [{"task": name, "probability": round(p, 6)} for name, p in ranked],
    }
