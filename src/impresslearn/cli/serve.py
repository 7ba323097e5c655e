"""`impresslearn serve`: predictions over HTTP."""

from enum import Enum
from typing import Annotated

from impresslearn.cli.arguments import Store, option


class LogLevel(str, Enum):
    """What is logged, from least to most."""

    critical = "critical"
    error = "error"
    warning = "warning"
    info = "info"
    debug = "debug"


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
            "Asked of every request but /health as a bearer token. Given as an option, it shows in "
            "the list of processes; the variable does not.",
            envvar="IMPRESSLEARN_TOKEN",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option(
            "NAME",
            "A name that requests may call this server by in their Host header, as behind a proxy; "
            "may be repeated. On loopback localhost is always one; without any, a server elsewhere "
            "takes every name.",
        ),
    ] = None,
    max_bytes: Annotated[int, option("N", "Bytes of one request's body.", min=1)] = 16 * 1024**2,
    max_rows: Annotated[int, option("N", "Inputs in one request.", min=1)] = 4096,
    max_candidates: Annotated[
        int, option("N", "Tasks that one inference may choose among.", min=1)
    ] = 10_000,
    max_tasks: Annotated[int, option("N", "Tasks in one mixed batch.", min=1)] = 256,
    max_memory: Annotated[
        int,
        option(
            "N",
            "Bytes that one request's activations, its logits, or the tasks of an inference may "
            "each take.",
            min=1,
        ),
    ] = 4 * 1024**3,
    max_peer_connections: Annotated[
        int,
        option(
            "N",
            "Connections of one address, of 256 in all. Behind a reverse proxy, which is one "
            "address, give it all of them: 256.",
            min=1,
        ),
    ] = 64,
    threads: Annotated[int, option("N", "Predictions computed at a time.", min=1)] = 2,
    log_level: Annotated[
        LogLevel, option("LEVEL", "What is logged on stderr: critical to debug.")
    ] = LogLevel.info,
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
