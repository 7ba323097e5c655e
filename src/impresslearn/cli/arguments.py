"""What several commands take: their shared options, and texts turned into values.

Errors are those of an argument: one line, exit status 2. Imports nothing heavy.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from impresslearn.errors import InputError, MissingDataError

Store = Annotated[Path, typer.Argument(metavar="STORE", help="The store's file.")]
Inputs = Annotated[
    Path,
    typer.Argument(metavar="INPUT", help="An image, a folder of images, .npy, .npz or .csv."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="Where to compute: cpu, cuda, cuda:1.")]

LabelColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME|POSITION", help="The label column of .csv; positions count from 0."),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first row of .csv names the columns."),
]
Shape = Annotated[
    str | None, typer.Option(metavar="N,N,…", help="Fold each input to this shape, as 1,28,28.")
]
Size = Annotated[
    int | None, typer.Option(metavar="N", help="Resize images to N pixels square, centre kept.")
]
Mean = Annotated[
    str | None,
    typer.Option(metavar="X,…", help="Subtract from the inputs: one number, or one a channel."),
]
Std = Annotated[
    str | None, typer.Option(metavar="X,…", help="Divide the inputs by: one, or one a channel.")
]
IsPrepared = Annotated[
    bool,
    typer.Option("--prepared", help="The inputs are as the network takes them, not raw."),
]


def reading_settings(
    label_column: str | None,
    header: bool | None,
    shape: str | None,
    size: int | None,
    mean: str | None,
    std: str | None,
) -> dict[str, Any]:
    """The options above as settings of `read_examples`."""
    return {
        "label_column": label_column,
        "header": header,
        "shape": None if shape is None else tuple(map(int, _numbers("--shape", shape, int))),
        "size": size,
        "mean": None if mean is None else _one_or_more(_numbers("--mean", mean, float)),
        "std": None if std is None else _one_or_more(_numbers("--std", std, float)),
    }


def settings_of(pairs: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """KEY=VALUE texts as a dictionary; values are JSON, and texts where they are not."""
    found: dict[str, Any] = {}
    for key, text in _split(pairs, option, "KEY=VALUE"):
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


def named_paths(pairs: Iterable[str], option: str) -> dict[str, Path]:
    """NAME=PATH texts as a dictionary; every path must be there."""
    return {name: existing(Path(text)) for name, text in _split(pairs, option, "NAME=PATH")}


def existing(path: Path) -> Path:
    """The path, if there is something."""
    if not path.exists():
        raise MissingDataError(f"there is no file or folder {path}")
    return path


def _split(pairs: Iterable[str], option: str, form: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not key or not sign or not text:
            raise InputError(f"{option} takes {form}, got {pair!r}")
        if key in found:
            raise InputError(f"{option} was given twice for {key!r}")
        found[key] = text
    return list(found.items())


def _numbers(option: str, text: str, kind: type) -> tuple[Any, ...]:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        words = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option} takes {words} with commas between, got {text!r}") from None


def _one_or_more(values: tuple[float, ...]) -> float | tuple[float, ...]:
    return values[0] if len(values) == 1 else values
