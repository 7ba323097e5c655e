"""The command line application: its commands, its option --version, and its exit statuses."""

import errno
import json
import os
import sys
import warnings
from typing import Annotated

import typer

from impresslearn.cli import manage, shared
from impresslearn.cli.demo import demo
from impresslearn.cli.learn import learn
from impresslearn.cli.new import advise, new
from impresslearn.cli.predict import evaluate, predict, serve
from impresslearn.errors import ImpressLearnError, StoreFullError, print_line

# Plain help and errors, because importing rich would take half of the time allowed for `--help`.
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from impresslearn import __version__

        shared.echo(f"impresslearn {__version__}")
        raise typer.Exit


@app.callback()
def impresslearn(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Continual learning in which every new task costs a handful of numbers.

    Make a store with `new`, learn tasks into it with `learn`, and use it with `predict` or `serve`.
    """


# In the order in which a new user needs them, which is the order of `--help`.
for command in (
    *(demo, advise, new, learn, predict, evaluate, serve),
    *(manage.tasks, manage.info, manage.verify, manage.restore, manage.remove),
    *(manage.backup, manage.merge, manage.diff, manage.compact),
):
    app.command()(command)


def main() -> None:
    """Runs the command line and sets its exit status.

    0 done, 1 failed, 2 wrong usage, 3 some of many tasks failed, 4 the store is in use, 5 the disk
    is full, 6 the store is damaged, 130 interrupted. With --json, errors are JSON objects too.
    """
    # On a busy machine, threads that spin while they wait slow each other down. With two other jobs
    # on two cores, the demo took 200 s spinning and 35 s sleeping. torch reads this at import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for characters not in its encoding
    warnings.showwarning = lambda message, *_, **__: print_line(f"warning: {message}")
    try:
        app(prog_name="impresslearn")
    except (ImpressLearnError, OSError) as failure:
        status = getattr(failure, "exit_status", 1)
        if isinstance(failure, OSError) and failure.errno == errno.ENOSPC:
            status = StoreFullError.exit_status
        if "--json" in sys.argv:
            # On one line, like the objects that `learn` prints.
            shared.echo(json.dumps({"error": str(failure), "exit_status": status}))
        shared.error(failure)
        raise SystemExit(status) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
