"""`impresslearn export` and `serve`: tasks as files for other programs, and over HTTP."""

from pathlib import Path
from typing import Annotated, Any

import typer

from impresslearn.cli.arguments import Module, Store, open_learner, option, reader_for
from impresslearn.cli.output import echo
from impresslearn.errors import InputError
from impresslearn.tables import size

STORE_SUFFIX = ".impress"


def export(
    store: Store,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="A new .impress store, or one task as .safetensors, .onnx or .pt2."
        ),
    ],
    task: Annotated[
        list[str] | None,
        option("NAME", "Only this task; may be repeated.", show_default="all tasks"),
    ] = None,
    example: Annotated[
        Path | None, option("PATH", "Inputs of the size that an .onnx or .pt2 file is for.")
    ] = None,
    module: Module = None,
) -> None:
    """Write tasks to a smaller store, or one task as a model.

    The suffix of OUT decides. A model needs no part of this library. The inputs of .onnx and .pt2
    are raw, as for the store.

    Example: impresslearn export shops.impress oslo.onnx --task oslo
    """
    from impresslearn.export import export_task

    if out.exists():
        raise typer.BadParameter(f"{out} exists already; choose another name")
    with open_learner(store, module, readonly=True, progress=False) as learner:
        names = list(dict.fromkeys(task or learner.tasks_))
        if out.suffix.lower() == STORE_SUFFIX:
            learner.save(out, tasks=names)
        elif len(names) != 1:
            raise InputError(f"{out} takes one task, not {len(names)}; name it with --task")
        else:
            inputs = None
            if example is not None:
                inputs = reader_for(learner).inputs(example).inputs
            export_task(learner.task_model(names[0]), out, example=inputs)
    echo(f"{out}: {', '.join(names[:5])}, {size(out.stat().st_size)}")


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
            "A bearer token that every request except /health and /docs needs. Prefer the "
            "environment variable: other users can see options in the list of processes.",
            envvar="IMPRESSLEARN_TOKEN",
        ),
    ] = None,
    max_bytes: Annotated[
        int | None, option("N", "Most bytes of a request's body.", show_default="16 MiB", min=1)
    ] = None,
    module: Module = None,
) -> None:
    """Answer predictions over HTTP.

    http://HOST:PORT/docs documents the requests. The server answers with tasks that you learn into
    STORE while it runs. It ends on SIGTERM or Ctrl-C, after the requests under way.

    Example: impresslearn serve shops.impress --port 8000
    """
    from impresslearn.serve import ServeSettings, run_server

    limits: dict[str, Any] = {} if max_bytes is None else {"max_bytes": max_bytes}
    settings = ServeSettings(token=token, **limits)
    with open_learner(store, module, readonly=True, progress=False) as learner:
        run_server(learner, settings, host=host, port=port)
