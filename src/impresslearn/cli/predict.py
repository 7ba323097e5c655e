"""`impresslearn predict`: labels for the inputs of a file or folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.cli.arguments import (
    AsJson,
    Device,
    Header,
    Inputs,
    IsPrepared,
    LabelColumn,
    Mean,
    Shape,
    Size,
    Std,
    Store,
    reading_settings,
)
from impresslearn.cli.output import plain_guess, plain_rows, print_json, print_rows, remark, say

if TYPE_CHECKING:
    from impresslearn.data.files import NamedInputs
    from impresslearn.inference import TaskGuess
    from impresslearn.learner import ImpressLearner


def predict(
    store: Store,
    inputs: Inputs,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="The task; by default it is inferred.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Also report the accuracy: .npy, .csv or .txt."),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Print the probability of every class.")
    ] = False,
    mean: Mean = None,
    std: Std = None,
    shape: Shape = None,
    size: Size = None,
    prepared: IsPrepared = False,
    label_column: LabelColumn = None,
    header: Header = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predict labels for the inputs of a file or folder.

    Prints a line an input: its name, the label, the probability of that label, with tabs between.
    Inputs are raw, as those that the task was learned from; the store prepares them.
    """
    from impresslearn.cli.data_files import Reading, read_prepared
    from impresslearn.cli.labelling import label_rows
    from impresslearn.data.preprocessing import Prepared
    from impresslearn.learner.loading import open_store

    asked = Reading(**reading_settings(label_column, header, shape, size, mean, std))
    with open_store(store, readonly=True, device=device, progress=False) as learner:
        reading = asked.of(learner, None if task is None else learner.tasks_[task])
        named = read_prepared(learner, reading, inputs, prepared)
        guess = _inferred(learner, named) if task is None else None
        rows = label_rows(learner, named, guess.best if guess is not None else str(task))
        accuracy = None
        if labels is not None:
            accuracy = learner.score(Prepared((named.inputs, reading.labels(labels))), rows.task)
    if not as_json:
        print_rows(rows, proba)
        if accuracy is not None:
            say(f"accuracy {accuracy:.1%} of {len(rows):,} rows")
        return
    told: dict[str, Any] = {
        "task": rows.task,
        "inferred": None if guess is None else plain_guess(guess),
    }
    told |= {"classes": list(rows.classes), "rows": plain_rows(rows, proba), "accuracy": accuracy}
    print_json(told)


def _inferred(learner: "ImpressLearner", inputs: "NamedInputs") -> "TaskGuess":
    """The task that the inputs belong to. Raises UnknownTaskError where they fit none."""
    from impresslearn.data.preprocessing import Prepared
    from impresslearn.errors import UnknownTaskError

    guess = learner.infer_task(Prepared(inputs.inputs))
    if guess.unknown:
        raise UnknownTaskError(
            f"the inputs look like none of the tasks: {guess.summary()}; name one with --task"
        )
    remark(f"task {guess.best} (probability {guess.posterior[guess.best]:.2f})")
    return guess
