"""The application: its version option and the list of its commands."""

from collections.abc import Callable
from typing import Annotated

import typer

from impresslearn.cli.demo import demo
from impresslearn.cli.learn import evaluate, learn, predict
from impresslearn.cli.manage import compact, info_, remove, restore, tasks, verify, versions
from impresslearn.cli.new import advise, new
from impresslearn.cli.output import echo
from impresslearn.cli.publish import export, serve

# Plain help and errors: importing rich would take half of the time that `--help` may take.
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
    """Continual learning in which every new task costs a handful of numbers.

    Make a store with `new`, learn tasks into it with `learn`, and use it with `predict` or `serve`.
    """


FIRST: tuple[Callable[..., None], ...] = (demo, advise, new, learn, predict, evaluate, tasks)
REST: tuple[Callable[..., None], ...] = (verify, versions, restore, remove, compact, export, serve)

for command in FIRST:
    app.command()(command)
app.command("info")(info_)
for command in REST:
    app.command()(command)
