"""`impresslearn predict`, `evaluate` and `serve`: labels and accuracies from a store."""

import json
import os
import signal
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer

from impresslearn.cli import shared
from impresslearn.cli.shared import AsJson, Data, Device, LabelColumn, Module, Store, echo, option
from impresslearn.errors import UnknownTaskError, error_prefix, print_line

WORKER = "IMPRESSLEARN_WORKER"  # environment variable with the settings of workers of `serve`


def predict(
    store: Store,
    inputs: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="A .csv, .npy, .npz, an image or a folder of images."),
    ],
    task: Annotated[
        str | None, option("NAME", "The task; by default the inputs are matched to one.")
    ] = None,
    label_column: LabelColumn = None,
    module: Module = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predict labels for the inputs of a file or folder.

    Prints a line per input: its name or row number, the label and the label's probability, with
    tabs between; --json gives the probabilities of all classes. Give raw inputs, like the examples
    that the task was learned from. Without --task all inputs must belong to one task, which the
    command finds and names on standard error.

    Example: impresslearn predict shops.impress new.csv --task oslo
    """
    from impresslearn.data import Prepared

    posterior = None
    with shared.open_learner(store, module, readonly=True, device=device) as learner:
        named = shared.reader_for(learner, label_column).inputs(inputs)
        values: Any = named.inputs
        with error_prefix(str(inputs)):
            if learner.preprocessing_ is not None:
                values = learner.preprocessing_.prepare(values, named.pixels, named.integers)
            learner.prepare(Prepared(values))  # raises for inputs that the network cannot take
        if task is None:
            guess = learner.infer_task(Prepared(values))
            posterior, task = dict(guess.posterior), guess.best
            # Print the five most probable tasks.
            ranked = sorted(posterior, key=posterior.__getitem__, reverse=True)[:5]
            likely = ", ".join(f"{name} {posterior[name]:.2f}" for name in ranked)
            if guess.unknown:
                line = f"the inputs look like none of the tasks (nearest: {likely})"
                raise UnknownTaskError(f"{line}; name one with --task")
            print_line(f"task {task} (posterior: {likely})")
        classes = learner.tasks_[task].classes
        logits = learner.logits(Prepared(values), task)[:, : len(classes)]
    rows, each = [], logits.float().softmax(dim=1).tolist()
    for name, shares in zip(named.labels.tolist(), each, strict=True):
        highest = max(shares)
        label = classes[shares.index(highest)]
        rows.append({"name": name, "label": label, "probability": highest, "probabilities": shares})
    if as_json:
        about = {"task": task, "posterior": posterior, "classes": list(classes)}
        shared.print_json(about | {"rows": rows})
        return
    for row in rows:
        echo(row["name"], str(row["label"]), f"{row['probability']:.4f}")


def evaluate(
    store: Store,
    data: Data,
    label_column: LabelColumn = None,
    module: Module = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Print the accuracy of tasks on labelled examples.

    The name of a file, or NAME, says which task it tests.

    Example: impresslearn evaluate shops.impress tests/*.csv
    """
    rows: list[dict[str, Any]] = []
    with shared.open_learner(store, module, readonly=True, device=device) as learner:
        reader = shared.reader_for(learner, label_column)
        for name, path in shared.task_paths(data).items():
            learner.tasks_.stored(name)  # an unknown name fails before its file is read
            examples = reader.examples(path)
            accuracy = learner.score(examples, name)
            rows.append({"task": name, "accuracy": accuracy, "examples": len(examples)})
    if as_json:
        shared.print_json(rows)
        return
    if len(rows) > 1:
        mean = sum(row["accuracy"] for row in rows) / len(rows)
        total = sum(row["examples"] for row in rows)
        rows.append({"task": "mean", "accuracy": mean, "examples": total})
    shared.print_table(rows)


def serve(
    store: Store,
    host: Annotated[str, option("NAME", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, option("N", "The port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    token: Annotated[
        str | None,
        option(
            "TEXT",
            "A bearer token that every request except /health, /ready and /docs needs. Prefer the "
            "environment variable: other users can see options in the list of processes.",
            envvar="IMPRESSLEARN_TOKEN",
        ),
    ] = None,
    max_bytes: Annotated[int, option("N", "Most bytes of a request's body.", min=1)] = 16 * 2**20,
    workers: Annotated[int, option("N", "Processes that answer.", min=1)] = 1,
    module: Module = None,
) -> None:
    """Answer predictions over HTTP, computed on the processor.

    http://HOST:PORT/docs documents the requests. The server answers with tasks that you learn into
    STORE while it runs. It ends on SIGTERM or Ctrl-C, after the requests under way.

    Example: impresslearn serve shops.impress --port 8000
    """
    from impresslearn.serve import run_server

    with shared.open_learner(store, module, readonly=True) as learner:
        # Workers are new processes, which inherit this variable and open the store themselves.
        os.environ[WORKER] = json.dumps([str(store), module, token, max_bytes])
        run_server(
            learner,
            token=token,
            max_bytes=max_bytes,
            host=host,
            port=port,
            workers=workers,
            app=f"{__name__}:worker_app",
        )


def worker_app() -> Any:
    """The FastAPI application of one worker process of `serve`."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    from impresslearn.serve import create_app

    def end_with(sentinel: int) -> None:  # the parent process, even if it ends by kill -9
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    store, module, token, max_bytes = json.loads(os.environ[WORKER])
    if parent := parent_process():
        Thread(target=end_with, args=[parent.sentinel], daemon=True).start()
    # The store is closed when the process ends.
    learner = shared.open_learner(Path(store), module, readonly=True)
    return create_app(learner, token=token, max_bytes=max_bytes)
