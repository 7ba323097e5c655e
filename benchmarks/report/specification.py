"""What a record asks to be shown: figures, tables and highlights, checked against its rows' keys.

    figures    kind, x, y, title?, caption?, where?, x_label?, y_label?
      box, bar, line    group?, reference?, order?
      line              log_x?, points?, frontier?, ours?
      heatmap           value, text?, facet?
    tables     title?, where?, columns and values | header and rows_verbatim
    highlights (a large number each)    title?, where?, value, caption?

x, y, group, value, text and facet name keys of the rows. `where` and `reference` choose rows by
their values, {"sparsity": 0.9} or {"method": ["supsup", "X"]}; rows of the reference are drawn
across the figure and not inside it. `points` names keys: rows of a group that agree in them are one
point, instead of those that agree in x, and no line joins the points. `frontier` draws the best
mean at every x, over the groups in `ours`. `order` names groups in the order that is wanted.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from reprlib import Repr
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)
from typing_extensions import Self

from impresslearn.errors import InputError

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def _plain(value: Any) -> Any:
    if not (isinstance(value, (str, bool)) or is_number(value)):
        raise ValueError("must be a text, a finite number or a truth value")
    return value


def _without_empty(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    return {key: value for key, value in raw.items() if value is not None}


Plain = Annotated[Any, BeforeValidator(_plain)]
"""A text, a finite number or a truth value."""
WithoutEmpty = BeforeValidator(_without_empty)
"""Entries of None are left out: an empty entry is none."""
Columns = Mapping[str, str]
"""Key of the rows -> "number", "text" or "flag"."""
LIMITED = {
    **dict.fromkeys(("group", "reference", "order"), ("box", "bar", "line")),
    **dict.fromkeys(("log_x", "points", "frontier", "ours"), ("line",)),
    **dict.fromkeys(("value", "text", "facet"), ("heatmap",)),
}
"""Settings that only some kinds of figure have."""
SEVERAL = BeforeValidator(lambda value: value if isinstance(value, (list, tuple)) else (value,))
"""One value is a list of itself."""
Texts = Annotated[tuple[str, ...], SEVERAL]
Filter = dict[str, Annotated[tuple[Plain, ...], SEVERAL]]


class Shown(BaseModel):
    """What figures, tables and highlights have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str = ""
    where: Filter = Field(default_factory=dict)

    named: ClassVar[tuple[str, ...]] = ()
    """The entries that hold a key of the rows, several keys, or values by key."""

    @property
    def measured(self) -> Iterable[str]:
        """The entries whose keys hold numbers."""
        return self.named[-1:]

    def check(self, columns: Columns) -> None:
        """Raise InputError unless the rows have every key that is named, of the right type."""
        numbers = self.measured
        for name in (*self.named, "where"):
            value: Any = getattr(self, name) or ()
            single = isinstance(value, str)
            for key in [value] if single else value:
                entry = f"{name if single else f'{name}.{key}'} names {shown(key)}, which"
                if key not in columns:
                    known = ", ".join(map(repr, columns))
                    raise InputError(f"{entry} no row has; rows have {known}")
                if name in numbers and columns[key] == "text":
                    raise InputError(f"{entry} is no number in the rows")


class Figure(Shown):
    """Spreads (box), means (bar, line) or cells (heatmap) of the rows' values over x."""

    named = ("x", "y", "group", "value", "text", "facet", "reference", "points")

    kind: Literal["box", "line", "bar", "heatmap"]
    x: str
    y: str
    caption: str = ""
    x_label: str = ""
    y_label: str = ""
    group: str | None = None
    reference: Filter = Field(default_factory=dict)
    order: Texts = ()
    log_x: StrictBool = False
    points: Texts = ()
    frontier: StrictBool = False
    ours: Texts = ()
    value: str | None = None
    text: str | None = None
    facet: str | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        for name in self.model_fields_set:
            if self.kind not in LIMITED.get(name, (self.kind,)):
                raise ValueError(f"a {self.kind} figure has no {name!r}")
        if self.kind == "heatmap" and self.value is None:
            raise ValueError("a heatmap figure needs 'value'")
        return self

    @property
    def measured(self) -> Iterable[str]:
        return ["value" if self.kind == "heatmap" else "y", *(["x"] if self.log_x else [])]


class Table(Shown):
    """Means of the values for each combination of the columns, or cells as they are."""

    named = ("columns", "values")

    columns: Texts = ()
    values: Texts = ()
    header: Texts = ()
    rows_verbatim: tuple[tuple[Plain | None, ...], ...] | None = None

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.rows_verbatim is None and not (self.columns and self.values):
            raise ValueError("needs columns and values, or header and rows_verbatim")
        for position, row in enumerate(self.rows_verbatim or ()):
            if len(row) != len(self.header):
                cells = f"{len(self.header)} cells like the header"
                raise ValueError(f"rows_verbatim[{position}] must have {cells}, got {len(row)}")
        return self


class Highlight(Shown):
    """The mean of a value, in large type."""

    named = ("value",)

    value: str
    caption: str = ""


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Puts `source` in front of the message of a failed check."""
    try:
        yield
    except ValidationError as error:
        raise InputError(f"{source}: {one_line(error)}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None


def one_line(error: ValidationError) -> str:
    """The first thing that is wrong: `figures[0].x: input should be a valid string, got 3`."""
    first = error.errors(include_url=False)[0]
    loc, message = first["loc"], first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    place = place.lstrip(".") or "the record"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place} is not known here"
    if not loc and first["type"] == "value_error":  # of parts together, which the message names
        return message
    return f"{place} {message.replace('should', 'must')}, got {shown(first['input'])}"


def is_number(value: Any) -> bool:
    """A finite number, no truth value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def shown(value: Any) -> str:
    """The value on one line, its middle left out where it is long."""
    return _SHORT.repr(value)
