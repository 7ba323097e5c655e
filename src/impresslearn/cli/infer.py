"""`impresslearn infer`: which task do these inputs belong to, and what are their labels then?"""

from typing import TYPE_CHECKING, Annotated, Any, cast

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
from impresslearn.cli.output import print_facts, print_json, remark, say
from impresslearn.cli.predictions import plain_guess, predict_named

if TYPE_CHECKING:
    from impresslearn.data.files import FileReader
    from impresslearn.inference import InferenceMethod, TaskGuess
    from impresslearn.learner import ImpressLearner

ROLES = ("all", "basis", "learned")


@option_groups
def infer(
    store: Store,
    inputs: Inputs,
    files: FileOptions,
    method: Annotated[str, option("NAME", "halving, one_shot or alpha.")] = "halving",
    among: Annotated[
        list[str] | None,
        option(
            "NAME", "Only this task, may be repeated; or all, basis, learned: those of that role."
        ),
    ] = None,
    prepared: IsPrepared = False,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Find which task inputs belong to, and their labels.

    The inputs must all be of one task. Nothing is predicted where they look like none of the tasks.
    Inputs are raw, as those that the tasks were learned from; the store prepares them.
    """
    from impresslearn.cli.data_files import read_prepared, reader_for
    from impresslearn.data import Prepared
    from impresslearn.learner.loading import open_store

    given = files.reader()
    chosen = among[0] if among and len(among) == 1 and among[0] in ROLES else among
    with open_store(store, readonly=True, device=device, progress=False) as learner:
        reader = reader_for(learner, given, inputs)
        named = read_prepared(learner, reader, inputs, prepared)
        word = cast("InferenceMethod", method)  # another one is refused there
        guess = learner.infer_task(Prepared(named.inputs), method=word, among=chosen or "all")
        _warn_of_other_inputs(learner, guess, reader)
        found = None if guess.unknown else predict_named(learner, named, guess.best, guess)
    told = plain_guess(guess)
    if as_json:
        classes, rows = (None, None) if found is None else (list(found.classes), found.rows())
        print_json(told | {"classes": classes, "rows": rows})
        return
    _print_guess(told)
    if found is not None:
        say()
        found.show()


def _print_guess(told: dict[str, Any]) -> None:
    likely = ", ".join(f"{each['task']} {each['probability']:.3f}" for each in told["posterior"])
    unknown = "unknown: the inputs look like none of the tasks"
    print_facts(
        [
            ("task", unknown if told["unknown"] else told["best"]),
            ("posterior", likely),
            ("unknown", f"{told['unknown_probability']:.3f}"),
            ("entropy", f"{told['entropy']:.3f} nats"),
        ]
    )


def _warn_of_other_inputs(
    learner: "ImpressLearner", guess: "TaskGuess", reader: "FileReader"
) -> None:
    from impresslearn.cli.data_files import inputs_of, kept_settings

    kept, used = inputs_of(learner.tasks_[guess.best]), kept_settings(reader)
    differing = [name for name, value in kept.items() if used.get(name) != value]
    if differing:
        remark(
            f"warning: {guess.best} was learned from inputs with other {', '.join(differing)}; "
            "say how to read these with the options of that name"
        )
