"""`impresslearn predict` and `infer`: labels for files, by a task that is named or found."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from impresslearn.cli.arguments import (
    AsJson,
    Device,
    FileOptions,
    OwnNetwork,
    Store,
    option,
    option_groups,
    own_module,
)
from impresslearn.cli.data_files import inputs_settings, kept_inputs, reader_for
from impresslearn.cli.output import echo, info, print_facts, print_json
from impresslearn.errors import UnknownTaskError

if TYPE_CHECKING:
    from impresslearn.data import Label
    from impresslearn.data.files import FileReader, NamedInputs
    from impresslearn.inference import InferenceMethod, TaskGuess
    from impresslearn.learner import ImpressLearner

Inputs = Annotated[
    Path,
    typer.Argument(metavar="INPUT", help="An image, a folder of images, .npy, .npz or .csv."),
]
IsPrepared = Annotated[
    bool, option(None, "The inputs are as the network takes them, not raw.", "--prepared")
]
ROLES = ("all", "basis", "learned")
LIKELIEST = 5
"""Tasks of a guess that are told."""


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
    module: OwnNetwork = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predict labels for the inputs of a file or folder.

    Prints a line an input: its name, the label, the probability of that label, with tabs between.
    Inputs are raw, as those that the task was learned from; the store prepares them.

    Example: impresslearn predict shops.impress new.csv --task oslo
    """
    from impresslearn.data import Prepared
    from impresslearn.learner.loading import open_store

    given, guess, accuracy = files.reader(), None, None
    network = own_module(module)
    with open_store(store, module=network, readonly=True, device=device, progress=False) as learner:
        known = None if task is None else learner.tasks_[task]
        named = _read(learner, reader_for(learner, given, inputs, known), inputs, prepared)
        if task is None:
            guess = learner.infer_task(Prepared(named.inputs))
            if guess.unknown:
                line = f"the inputs look like none of the tasks: {guess.summary()}"
                raise UnknownTaskError(f"{line}; name one with --task")
            task = guess.best
            info(f"task {task} (probability {guess.posterior[task]:.2f})")
        classes, rows = _predicted(learner, named, task, guess, proba)
        if labels is not None:
            column = given.label_column if labels.suffix.lower() == ".csv" else None
            true = replace(given, label_column=column).labels(labels)
            accuracy = learner.score(Prepared((named.inputs, true)), task)
    if as_json:
        inferred = None if guess is None else _plain(guess)
        told = {"task": task, "inferred": inferred, "classes": list(classes), "rows": rows}
        print_json(told | {"accuracy": accuracy})
        return
    _print_rows(rows, classes)
    if accuracy is not None:
        echo(f"accuracy {accuracy:.1%} of {len(rows):,} rows")


@option_groups
def infer(
    store: Store,
    inputs: Inputs,
    files: FileOptions,
    method: Annotated[str, option("NAME", "auto, exhaustive, one_shot or alpha.")] = "auto",
    among: Annotated[
        list[str] | None,
        option(
            "NAME", "Only this task, may be repeated; or all, basis, learned: those of that role."
        ),
    ] = None,
    prepared: IsPrepared = False,
    module: OwnNetwork = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Find which task inputs belong to, and their labels.

    The inputs must all be of one task. Nothing is predicted where they look like none of the tasks.
    Inputs are raw, as those that the tasks were learned from; the store prepares them.

    Example: impresslearn infer shops.impress new.csv
    """
    from impresslearn.data import Prepared
    from impresslearn.learner.loading import open_store

    given, network = files.reader(), own_module(module)
    chosen = among[0] if among and len(among) == 1 and among[0] in ROLES else among
    with open_store(store, module=network, readonly=True, device=device, progress=False) as learner:
        reader = reader_for(learner, given, inputs)
        named = _read(learner, reader, inputs, prepared)
        word = cast("InferenceMethod", method)  # another one is refused there
        guess = learner.infer_task(Prepared(named.inputs), method=word, among=chosen or "all")
        _warn_of_other_inputs(learner, guess.best, reader)
        found = None if guess.unknown else _predicted(learner, named, guess.best, guess)
    told = _plain(guess)
    if as_json:
        classes, rows = (None, None) if found is None else (list(found[0]), found[1])
        print_json(told | {"classes": classes, "rows": rows})
        return
    likely = ", ".join(f"{each['task']} {each['probability']:.3f}" for each in told["posterior"])
    unknown = "unknown: the inputs look like none of the tasks"
    print_facts(
        [
            ("task", unknown if guess.unknown else guess.best),
            ("posterior", likely),
            ("unknown", f"{guess.unknown_probability:.3f}"),
            ("entropy", f"{guess.entropy:.3f} nats"),
        ]
    )
    if found is not None:
        echo()
        _print_rows(found[1], found[0])


def _read(
    learner: "ImpressLearner", reader: "FileReader", path: Path, prepared: bool
) -> "NamedInputs":
    """Named inputs of a file or folder as the network takes them; prepared: whether they are."""
    if prepared:
        reader = replace(reader, shape=None, size=None, mean=None, std=None)
    named, preprocessing = reader.inputs(path), learner.preprocessing_
    if preprocessing is not None and not prepared:
        named = replace(named, inputs=preprocessing.prepare(named.inputs, named.pixels))
    learner.backbone.check_inputs(named.inputs)
    return named


def _predicted(
    learner: "ImpressLearner",
    inputs: "NamedInputs",
    task: str,
    guess: "TaskGuess | None",
    proba: bool = False,
) -> "tuple[tuple[Label, ...], list[dict[str, Any]]]":
    """The classes of a task, and a row of plain values for each prepared input.

    They are labelled by the task, or by the mixture of masks that method "alpha" guessed.
    """
    from impresslearn.data import Prepared

    prepared = Prepared(inputs.inputs)
    if guess is None or guess.mixture is None:
        logits = learner.logits(prepared, task)
    else:
        logits = guess.mixture.logits(learner.backbone, learner.prepare(prepared))
    classes, rows = learner.tasks_[task].classes, []
    likely = logits[:, : len(classes)].float().softmax(dim=1).cpu().numpy()
    for name, each in zip(inputs.names, likely, strict=True):
        confidence = round(float(each.max()), 6)
        row = {"name": name, "label": classes[each.argmax()], "confidence": confidence}
        if proba:
            row["probabilities"] = [round(value, 6) for value in each.tolist()]
        rows.append(row)
    return classes, rows


def _print_rows(rows: list[dict[str, Any]], classes: "tuple[Label, ...]") -> None:
    """A line an input: name, label, confidence, and if asked for every class's probability."""
    for row in rows:
        likely = zip(classes, row.get("probabilities", ()), strict=False)
        cells = [row["name"], str(row["label"]), f"{row['confidence']:.4f}"]
        echo(*cells, *(f"{each}={value:.4f}" for each, value in likely))


def _plain(guess: "TaskGuess") -> dict[str, Any]:
    """What a task inference found as plain values, its likeliest tasks first."""
    ranked = sorted(guess.posterior.items(), key=lambda item: -item[1])[:LIKELIEST]
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


def _warn_of_other_inputs(learner: "ImpressLearner", task: str, reader: "FileReader") -> None:
    kept, used = kept_inputs(learner, learner.tasks_[task]), inputs_settings(reader)
    if differing := [name for name, value in kept.items() if used.get(name) != value]:
        info(
            f"warning: {task} was learned from inputs with other {', '.join(differing)}; "
            "say how to read these with the options of that name"
        )
