"""The application: its options and the list of its commands."""

from typing import Annotated

import typer

from impresslearn.cli.bench import bench
from impresslearn.cli.demo import demo
from impresslearn.cli.env import env
from impresslearn.cli.infer import infer
from impresslearn.cli.learn import learn
from impresslearn.cli.output import say
from impresslearn.cli.predict import predict
from impresslearn.cli.report import report
from impresslearn.cli.reproduce import reproduce
from impresslearn.cli.run import run
from impresslearn.cli.serve import serve
from impresslearn.cli.store import store

# Plain help and errors: importing rich would cost half of the time that `--help` may take.
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

        say(f"impresslearn {__version__}")
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
    """Continual learning in which every new task costs a handful of numbers."""


app.command()(demo)
app.command()(learn)
app.command()(predict)
app.command()(infer)
app.add_typer(store, name="store")
app.command()(serve)
app.command()(run)
app.command()(reproduce)
app.command()(report)
app.command()(bench)
app.command()(env)
