"""Options that several commands share, and texts turned into values. Imports nothing heavy.

`option_groups` lets a command take dataclasses whose fields are its options, and whose heading
stands over them in its help. Errors are those of an argument: one line, exit status 2.
"""

import functools
import inspect
import json
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from impresslearn.errors import InputError, MissingDataError

if TYPE_CHECKING:
    from torch import nn

    from impresslearn.data.files import FileReader
    from impresslearn.networks import Backbone


def option(metavar: str | None, text: str, *names: str, **settings: Any) -> Any:
    """An option with its help text; names: where they are not those of the parameter."""
    return typer.Option(*names, metavar=metavar, help=text, **settings)


Store = Annotated[Path, typer.Argument(metavar="STORE", help="The store's file.")]
AsJson = Annotated[bool, option(None, "Print one JSON document and nothing else.", "--json")]
Quiet = Annotated[bool, option(None, "Print nothing but errors.", "--quiet", "-q")]
Device = Annotated[str, option("NAME", "Where to compute: cpu, cuda, cuda:1.")]
OwnNetwork = Annotated[
    str | None,
    option(
        "FILE:FUNCTION",
        "For a network of your own in the store: what FUNCTION() of FILE.py here returns.",
        "--module",
    ),
]
Only = Annotated[
    list[str] | None, option("NAME", "Only this task; may be repeated. By default all.")
]


def option_field(
    metavar: str | None, text: str, *names: str, default: Any = None, **settings: Any
) -> Any:
    """A field of an option group (see `option_groups`), with the settings of `option`."""
    return field(default=default, metadata={"option": option(metavar, text, *names, **settings)})


@dataclass(frozen=True)
class FileOptions:
    """How files become inputs and labels."""

    heading: ClassVar[str] = "How files are read"
    mean: str | None = option_field(
        "X,…", "Subtract from the inputs: one number, or one a channel or column."
    )
    std: str | None = option_field("X,…", "Divide the inputs by: one, or one a channel or column.")
    shape: str | None = option_field("N,N,…", "Fold each input to this shape, as 1,28,28.")
    size: int | None = option_field("N", "Resize images to N pixels square, centre kept.")
    label_column: str | None = option_field(
        "NAME|POSITION", "The label column of .csv; positions count from 0."
    )
    header: bool | None = option_field(
        None, "Whether the first row of .csv names the columns.", "--header/--no-header"
    )

    def reader(self) -> "FileReader":
        """The reader of such files. Raises InputError for texts that are no numbers."""
        from impresslearn.data.files import FileReader

        shape = _numbers("--shape", self.shape, int)
        mean, std = _numbers("--mean", self.mean, float), _numbers("--std", self.std, float)
        mean, std = (each[0] if each and len(each) == 1 else each for each in (mean, std))
        return FileReader(self.label_column, self.header, shape, self.size, mean, std)


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Lets a command take dataclasses whose fields are its options."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter)
            continue
        group: Any = parameter.annotation
        groups[parameter.name] = group
        types = get_type_hints(group)
        for each in fields(group):
            told = copy(each.metadata["option"])
            told.rich_help_panel = group.heading
            annotation: Any = Annotated[types[each.name], told]
            parameters.append(
                parameter.replace(name=each.name, default=each.default, annotation=annotation)
            )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def settings_of(pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE texts of --set as a dictionary; values are JSON, and texts where they are not."""
    found: dict[str, Any] = {}
    for key, text in _split(pairs, "--set", "KEY=VALUE").items():
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


def named_paths(pairs: Iterable[str], option: str) -> dict[str, Path]:
    """NAME=PATH texts as a dictionary; every path must be there."""
    found = _split(pairs, option, "NAME=PATH")
    return {name: existing(Path(text)) for name, text in found.items()}


def own_network(reference: str | None) -> "Backbone | nn.Module | None":
    """What the function that --module names returns: a module, or what `adapt` makes of one."""
    from torch import nn

    from impresslearn.cli.own_module import call_user_function
    from impresslearn.networks import Backbone

    if reference is not None and not all(reference.partition(":")):
        raise InputError(f"--module takes FILE:FUNCTION, as nets:make, got {reference!r}")
    if reference is None:
        return None
    found = call_user_function(Path(), reference, {})
    if not isinstance(found, (nn.Module, Backbone)):
        kind = type(found).__name__
        raise InputError(f"--module {reference} must return an nn.Module or a Backbone, got {kind}")
    return found


def own_module(reference: str | None) -> "nn.Module | None":
    """The module of `own_network`, as stores take it."""
    from impresslearn.networks import Backbone

    network = own_network(reference)
    return network.module if isinstance(network, Backbone) else network


def existing(path: Path) -> Path:
    """The path, if there is something."""
    if not path.exists():
        raise MissingDataError(f"there is no file or folder {path}")
    return path


def _split(pairs: Iterable[str], option: str, form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        if not key or not text:
            raise InputError(f"{option} takes {form}, got {pair!r}")
        if key in found:
            raise InputError(f"{option} was given twice for {key!r}")
        found[key] = text
    return found


def _numbers(option: str, text: str | None, kind: type) -> Any:
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        words = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option} takes {words} with commas between, got {text!r}") from None
