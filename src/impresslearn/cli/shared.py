"""Arguments that several commands have, and functions that print. Imports nothing heavy.

Commands print only by these functions: results to standard output, messages to standard error.
Tasks and files may have any name, so `visible` keeps control characters away from the terminal.
"""

import json
import os
import runpy
import shlex
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from impresslearn.errors import InputError, visible
from impresslearn.files import reason_of
from impresslearn.tables import WIDTH, table_of

if TYPE_CHECKING:
    from impresslearn.data.file_reader import FileReader
    from impresslearn.learner import ImpressLearner


def option(metavar: str | None, text: str, *names: str, **settings: Any) -> Any:
    """An option with its help text. names: in place of the name of the parameter."""
    return typer.Option(*names, metavar=metavar, help=text, **settings)


Store = Annotated[Path, typer.Argument(metavar="STORE", help="The store's file.")]
TABLES = (".csv", ".npz", ".parquet")  # suffixes of data files, of which a folder may hold many
Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="Labelled examples: one .csv, .npz or folder of images (CLASS/IMAGE) per task, or a "
        "folder of such files. A file's name becomes the task's, unless you write NAME=PATH.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, option(None, "Print JSON.", "--json")]
Device = Annotated[str, option("NAME", "Where to compute: cpu, cuda, cuda:1.")]
LabelColumn = Annotated[
    str | None,
    option(
        "NAME",
        "The name of the label column in .csv files.",
        show_default="label, target, class or y",
    ),
]
Module = Annotated[
    str | None,
    option(
        "FILE:FUNCTION",
        "Your own network: FUNCTION() in FILE.py returns an nn.Module. Commands that compute with "
        "its store need this option, too.",
    ),
]


def settings_of(pairs: Iterable[str] | None, option: str, known: Any = ()) -> dict[str, Any]:
    """KEY=VALUE texts as a dictionary. Values are JSON or else strings. known: the valid keys."""
    from impresslearn.checks import check_known

    settings: dict[str, Any] = {}
    for pair in pairs or ():
        key, separator, text = pair.partition("=")
        if not key or not separator:
            raise typer.BadParameter(f"{option} takes KEY=VALUE, got {pair!r}")
        check_known(f"{option} has no setting", key, known or (key,))
        try:
            settings[key] = json.loads(text)
        except ValueError:
            settings[key] = text
    return settings


def task_paths(data: Iterable[str]) -> dict[str, Path]:
    """Task name -> path. Raises BadParameter if two paths have the same name."""
    from impresslearn.checks import composed

    paths: dict[str, Path] = {}
    texts: list[str] = []
    for text in data:
        entries = sorted(Path(text).glob("[!.]*"))
        files = [str(entry) for entry in entries if entry.suffix.lower() in TABLES]
        # A folder with sub-folders is an image folder, so a table in it is not a task.
        texts += [text] if any(map(Path.is_dir, entries)) or not files else files
    for text in texts:
        path = Path(text)
        name, separator, rest = text.partition("=")
        if separator and not path.exists():  # a file's name may contain "="
            path = Path(rest)
        else:
            name = path.resolve().name if path.is_dir() else path.stem
        name = composed(name)
        if name in paths:
            line = f"{paths[name]} and {path} would both be task {name!r}"
            raise typer.BadParameter(f"{line}; name them: NAME=PATH")
        paths[name] = path
    return paths


def load_module(reference: str | None) -> Any:
    """The module that the function in FILE:FUNCTION returns; None without a reference."""
    if reference is None:
        return None
    file, _, name = reference.partition(":")
    path = Path(file.removesuffix(".py") + ".py").resolve()
    sys.path.insert(0, str(path.parent))  # so that the file can import modules beside it
    try:
        return runpy.run_path(str(path))[name]()
    except Exception as error:  # the user's code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f" (line {each.lineno})" for each in frames if each.filename == str(path)]
        raise InputError(
            "--module takes FILE:FUNCTION, where FUNCTION() in FILE.py returns an nn.Module; "
            f"{reference}: {type(error).__name__}: {reason_of(error)}{''.join(lines[-1:])}"
        ) from error


def open_learner(store: Path, module: str | None, **settings: Any) -> "ImpressLearner":
    """Opens a store's learner; settings as in `open_store`."""
    from impresslearn.learner import open_store

    return open_store(store, module=load_module(module), **{"progress": False} | settings)


def reader_for(learner: "ImpressLearner", label_column: str | None = None) -> "FileReader":
    """A reader that brings files to the image size and column order of a learner's inputs."""
    from impresslearn.data import Preprocessing
    from impresslearn.data.file_reader import FileReader

    return FileReader(label_column, learner.preprocessing_ or Preprocessing())


def echo(*cells: str) -> None:
    """Prints one line of the result; several cells are separated by tabs."""
    print("\t".join(map(visible, cells)), flush=True)


def echo_command(words: Iterable[str]) -> None:
    """Prints a command for a shell, in lines of at most 80 columns."""
    line = ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > WIDTH - 3:
            echo(f"{line} \\")
            line = "    "
        line += word if not line or line.isspace() else f" {word}"
    echo(line)


def error(failure: Exception | str, about: str = "error") -> None:
    """Prints an error as one line on standard error."""
    parts = about, getattr(failure, "filename", None), getattr(failure, "strerror", None) or failure
    line = " ".join(": ".join(str(part) for part in parts if part).split())
    start, colon, rest = visible(line).partition(":")
    coloured = False if os.environ.get("NO_COLOR") else None  # None: if it is a terminal
    typer.echo(typer.style(start, "red") + colon + rest, sys.stderr, color=coloured)


def print_json(value: Any) -> None:
    """Prints one JSON document in ASCII, which every terminal can show."""
    print(json.dumps(value, indent=1, allow_nan=False), flush=True)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows with the same keys as aligned columns."""
    for line in table_of(rows).text().splitlines():
        echo(line)
