"""`impresslearn predict`: labels for the inputs of a file or folder."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from impresslearn.cli.arguments import (
    AsJson,
    Device,
    FileOptions,
    Inputs,
    IsPrepared,
    Store,
    option,
    option_groups,
)
from impresslearn.cli.output import print_json, remark, say
from impresslearn.cli.predictions import plain_guess, predict_named

if TYPE_CHECKING:
    from impresslearn.data.files import NamedInputs
    from impresslearn.inference import TaskGuess
    from impresslearn.learner import ImpressLearner


@option_groups
def predict(
    store: Store,
    inputs: Inputs,
    files: FileOptions,
    task: Annotated[str | None, option("NAME", "The task; by default it is inferred.")] = None,
    labels: Annotated[
        Path | None, option("PATH", "Also report the accuracy: .npy, .csv or .txt.")
    ] = None,
    proba: Annotated[bool, option(None, "Print the probability of every class.", "--proba")] = (
        False
    ),
    prepared: IsPrepared = False,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predict labels for the inputs of a file or folder.

    Prints a line an input: its name, the label, the probability of that label, with tabs between.
    Inputs are raw, as those that the task was learned from; the store prepares them.
    """
    from impresslearn.cli.data_files import read_prepared, reader_for
    from impresslearn.data import Prepared
    from impresslearn.learner.loading import open_store

    given, accuracy = files.reader(), None
    with open_store(store, readonly=True, device=device, progress=False) as learner:
        info = None if task is None else learner.tasks_[task]
        named = read_prepared(learner, reader_for(learner, given, inputs, info), inputs, prepared)
        guess = _inferred(learner, named) if task is None else None
        found = predict_named(learner, named, guess.best if guess is not None else str(task))
        if labels is not None:
            column = given.label_column if labels.suffix.lower() == ".csv" else None
            true = replace(given, label_column=column).labels(labels)
            accuracy = learner.score(Prepared((named.inputs, true)), found.task)
    if as_json:
        inferred = None if guess is None else plain_guess(guess)
        told = {"task": found.task, "inferred": inferred, "classes": list(found.classes)}
        print_json(told | {"rows": found.rows(proba), "accuracy": accuracy})
        return
    found.show(proba)
    if accuracy is not None:
        say(f"accuracy {accuracy:.1%} of {len(found.names):,} rows")


def _inferred(learner: "ImpressLearner", inputs: "NamedInputs") -> "TaskGuess":
    """The task that the inputs belong to. Raises UnknownTaskError where they fit none."""
    from impresslearn.data import Prepared
    from impresslearn.errors import UnknownTaskError

    guess = learner.infer_task(Prepared(inputs.inputs))
    if guess.unknown:
        raise UnknownTaskError(
            f"the inputs look like none of the tasks: {guess.summary()}; name one with --task"
        )
    remark(f"task {guess.best} (probability {guess.posterior[guess.best]:.2f})")
    return guess
