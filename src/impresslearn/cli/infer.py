"""`impresslearn infer`: which task do these inputs belong to, and what are their labels then?"""

from typing import TYPE_CHECKING, Annotated

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
from impresslearn.cli.output import (
    plain_guess,
    plain_rows,
    print_facts,
    print_json,
    print_rows,
    remark,
    say,
)

if TYPE_CHECKING:
    from impresslearn.cli.data_files import Reading
    from impresslearn.inference import TaskGuess
    from impresslearn.learner import ImpressLearner

ROLES = ("all", "basis", "learned")


def infer(
    store: Store,
    inputs: Inputs,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="halving, one_shot or alpha.")
    ] = "halving",
    among: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this task, may be repeated; or all, basis, learned: those of that role.",
        ),
    ] = None,
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
    """Find which task inputs belong to, and their labels.

    The inputs must all be of one task. Nothing is predicted where they look like none of the tasks.
    Inputs are raw, as those that the tasks were learned from; the store prepares them.
    """
    from impresslearn.cli.data_files import Reading, read_prepared
    from impresslearn.cli.labelling import label_rows_by_guess
    from impresslearn.data.preprocessing import Prepared
    from impresslearn.learner.loading import open_store

    asked = Reading(**reading_settings(label_column, header, shape, size, mean, std))
    chosen = among[0] if among and len(among) == 1 and among[0] in ROLES else among
    with open_store(store, readonly=True, device=device, progress=False) as learner:
        reading = asked.of(learner)
        named = read_prepared(learner, reading, inputs, prepared)
        guess = learner.infer_task(Prepared(named.inputs), method=method, among=chosen or "all")
        _warn_of_other_inputs(learner, guess, reading)
        rows = None if guess.unknown else label_rows_by_guess(learner, named, guess)
    if as_json:
        told = plain_guess(guess) | {"classes": None, "rows": None}
        if rows is not None:
            told |= {"classes": list(rows.classes), "rows": plain_rows(rows)}
        print_json(told)
        return
    _print_guess(guess)
    if rows is not None:
        say()
        print_rows(rows)


def _print_guess(guess: "TaskGuess") -> None:
    told = plain_guess(guess)
    likely = ", ".join(f"{each['task']} {each['probability']:.3f}" for each in told["posterior"])
    print_facts(
        [
            ("task", "unknown: the inputs look like none of the tasks" if guess.unknown else None),
            ("task", None if guess.unknown else guess.best),
            ("posterior", likely),
            ("unknown", f"{guess.unknown_probability:.3f}"),
            ("entropy", f"{guess.entropy:.3f} nats"),
        ]
    )


def _warn_of_other_inputs(
    learner: "ImpressLearner", guess: "TaskGuess", reading: "Reading"
) -> None:
    from impresslearn.cli.data_files import inputs_of

    own = inputs_of(learner.tasks_[guess.best])
    differing = [name for name, value in own.items() if reading.kept().get(name) != value]
    if differing:
        remark(
            f"warning: {guess.best} was learned from inputs with other {', '.join(differing)}; "
            "say how to read these with the options of that name"
        )
