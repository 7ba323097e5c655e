"""The application: its options, and the list of its commands."""

from typing import Annotated

import typer

from impresslearn.cli.advise import advise
from impresslearn.cli.demo import demo
from impresslearn.cli.help import PlainCommand
from impresslearn.cli.learn import learn
from impresslearn.cli.output import echo
from impresslearn.cli.predict import infer, predict
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

        echo(f"impresslearn {__version__}")
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


for command in (demo, advise, learn, predict, infer):
    app.command(cls=PlainCommand)(command)
app.add_typer(store, name="store")
app.command(cls=PlainCommand)(serve)
