"""`impresslearn serve`: predictions over HTTP."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from impresslearn.cli.arguments import (
    OwnNetwork,
    Store,
    option,
    option_field,
    option_groups,
    own_module,
)


@dataclass(frozen=True)
class LimitOptions:
    """Limits of a server, where others than its own are asked for."""

    heading: ClassVar[str] = "Limits"
    max_bytes: int | None = option_field(
        "N", "Bytes of one request's body.", show_default="16 MiB", min=1
    )
    max_rows: int | None = option_field("N", "Inputs in one request.", show_default="4096", min=1)
    threads: int | None = option_field(
        "N", "Predictions computed at a time.", show_default="2", min=1
    )


@option_groups
def serve(
    store: Store,
    limits: LimitOptions,
    host: Annotated[str, option("NAME", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, option("N", "The port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    token: Annotated[
        str | None,
        option(
            "TEXT",
            "A bearer token that every request but /health and /docs needs. As an option it shows "
            "in the list of processes; the variable does not.",
            envvar="IMPRESSLEARN_TOKEN",
        ),
    ] = None,
    allow_changes: Annotated[
        bool,
        option(
            None,
            "Let requests restore versions of tasks and remove tasks; needs --token.",
            "--allow-changes",
        ),
    ] = False,
    module: OwnNetwork = None,
    log_level: Annotated[
        str, option("LEVEL", "What is logged on stderr: critical, error, warning, info or debug.")
    ] = "info",
) -> None:
    """Answer predictions over HTTP: by task, in mixed batches, and with the task unknown.

    Documented at http://HOST:PORT/docs once it runs. Tasks that are learned into STORE meanwhile
    are served at once. Ends on SIGTERM or Ctrl-C, after the requests under way.

    Example: impresslearn serve shops.impress --port 8000
    """
    from impresslearn.learner.loading import open_store
    from impresslearn.serve import ServeSettings, run_server

    given: dict[str, Any] = {name: n for name, n in vars(limits).items() if n is not None}
    given |= {"token": token, "allow_changes": allow_changes}
    settings = ServeSettings(**given)
    level = cast("Any", log_level)  # another one is refused there
    how: Any = {"host": host, "port": port, "log_level": level}
    if module is None:
        run_server(store, settings, **how)
        return
    opened: Any = {"module": own_module(module), "readonly": not allow_changes}
    with open_store(store, **opened, progress=False) as learner:
        run_server(learner, settings, **how)
