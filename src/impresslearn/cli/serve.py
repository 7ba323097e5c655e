"""`impresslearn serve`: predictions over HTTP."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class LogLevel(str, Enum):
    """What is logged, from least to most."""

    critical = "critical"
    error = "error"
    warning = "warning"
    info = "info"
    debug = "debug"


def serve(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A file of tasks.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="IMPRESSLEARN_TOKEN",
            help="Asked of every request but /health as a bearer token. Given as an option, it "
            "shows in the list of processes; the variable does not.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name that requests may call this server by in their Host header, as behind a "
            "proxy; may be repeated. On loopback localhost is always one; without any, a server "
            "elsewhere takes every name.",
        ),
    ] = None,
    max_bytes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Bytes of one request's body.")
    ] = 16 * 1024**2,
    max_rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Inputs in one request.")
    ] = 4096,
    max_candidates: Annotated[
        int, typer.Option(metavar="N", min=1, help="Tasks that one inference may choose among.")
    ] = 10_000,
    max_tasks: Annotated[
        int, typer.Option(metavar="N", min=1, help="Tasks in one mixed batch.")
    ] = 256,
    max_memory: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Bytes that one request's activations, its logits, or the tasks of an inference "
            "may each take.",
        ),
    ] = 4 * 1024**3,
    max_peer_connections: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Connections of one address, of 256 in all. Behind a reverse proxy, which is one "
            "address, give it all of them: 256.",
        ),
    ] = 64,
    threads: Annotated[
        int, typer.Option(metavar="N", min=1, help="Predictions computed at a time.")
    ] = 2,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged on stderr.")] = LogLevel.info,
) -> None:
    """Answer predictions over HTTP: by task, in mixed batches, and with the task unknown.

    Documented at http://HOST:PORT/docs once it runs. Tasks that are learned into STORE meanwhile
    are served at once. Ends on SIGTERM or Ctrl-C, after the requests under way.
    """
    from impresslearn.serve import ServeSettings, run_server

    settings = ServeSettings(
        token=token,
        hosts=tuple(allow_host or ()),
        max_bytes=max_bytes,
        max_rows=max_rows,
        max_tasks=max_tasks,
        max_candidates=max_candidates,
        max_memory=max_memory,
        max_peer_connections=max_peer_connections,
        threads=threads,
    )
    run_server(store, settings, host=host, port=port, log_level=log_level.value)
