"""What a record asks to be shown: figures and tables, checked against the keys of its rows.

    figures    kind, x, y, title?, caption?, where?, x_label?, y_label?
      box, bar, line    group?, reference?, order?
      line              log_x?, points?, frontier?, ours?
      heatmap           value, text?, facet?
    tables     title?, where?, columns and values | header and rows_verbatim

x, y, group, value, text and facet name keys of the rows. `where` and `reference` choose rows by
their values, {"sparsity": 0.9} or {"method": ["supsup", "X"]}; rows of the reference are drawn
across the figure and not inside it. `points` names keys: rows of a group that agree in them are one
point, instead of those that agree in x, and no line joins the points. `frontier` draws the best
mean at every x, over the groups in `ours`. `order` names groups in the order that is wanted.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator
from typing_extensions import Self

from impresslearn.errors import InputError
from impresslearn.report.checking import is_plain, shown

Columns = Mapping[str, str]
"""Key of the rows -> "number", "text" or "flag"."""
LIMITED = {
    **dict.fromkeys(("group", "reference", "order"), ("box", "bar", "line")),
    **dict.fromkeys(("log_x", "points", "frontier", "ours"), ("line",)),
    **dict.fromkeys(("value", "text", "facet"), ("heatmap",)),
}
"""Settings that only some kinds of figure have."""


def _several(value: Any) -> Any:
    """One value as a list of itself."""
    return value if isinstance(value, (list, tuple)) else (value,)


def _plain(value: Any) -> Any:
    if not is_plain(value):
        raise ValueError("must be a text or a number")
    return value


Texts = Annotated[tuple[str, ...], BeforeValidator(_several)]
Plain = Annotated[Any, BeforeValidator(_plain)]
Filter = dict[str, Annotated[tuple[Plain, ...], BeforeValidator(_several)]]
Cell = Annotated[Any, BeforeValidator(lambda value: value if value is None else _plain(value))]


class Shown(BaseModel):
    """What figures and tables have in common; an empty entry is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str = ""
    where: Filter = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        return {key: value for key, value in raw.items() if value is not None}


class Figure(Shown):
    """Spreads (box), means (bar, line) or cells (heatmap) of the rows' values over x."""

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

    def check(self, columns: Columns) -> None:
        """Raise InputError unless the rows have every key that is named, of the right type."""
        entries = ("x", "y", "group", "value", "text", "facet")
        keys: dict[str, str | None] = {entry: getattr(self, entry) for entry in entries}
        for part in ("where", "reference", "points"):
            keys |= {f"{part}.{key}": key for key in getattr(self, part)}
        measured = {"value" if self.kind == "heatmap" else "y"} | ({"x"} if self.log_x else set())
        _check_keys(keys, measured, columns)


class Table(Shown):
    """Means of the values for each combination of the columns, or cells as they are."""

    columns: Texts = ()
    values: Texts = ()
    header: Texts = ()
    rows_verbatim: tuple[tuple[Cell, ...], ...] | None = None

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.rows_verbatim is None and not (self.columns and self.values):
            raise ValueError("needs columns and values, or header and rows_verbatim")
        for position, row in enumerate(self.rows_verbatim or ()):
            if len(row) != len(self.header):
                cells = f"{len(self.header)} cells like the header"
                raise ValueError(f"rows_verbatim[{position}] must have {cells}, got {len(row)}")
        return self

    def check(self, columns: Columns) -> None:
        """Raise InputError unless the rows have every key that is named, of the right type."""
        parts = ("columns", "values", "where")
        keys = {f"{part}.{key}": key for part in parts for key in getattr(self, part)}
        _check_keys(keys, {f"values.{key}" for key in self.values}, columns)


def matches(row: Mapping[str, Any], chosen: Filter, lenient: bool = False) -> bool:
    """Whether a row has the values asked for; lenient: a key that it lacks is no hindrance."""
    return all(
        lenient if row.get(key) is None else row[key] in allowed for key, allowed in chosen.items()
    )


def _check_keys(keys: Mapping[str, str | None], measured: set[str], columns: Columns) -> None:
    for entry, key in keys.items():
        if key is not None and key not in columns:
            known = ", ".join(map(repr, columns))
            raise InputError(f"{entry} names {shown(key)}, which no row has; rows have {known}")
        if key is not None and entry in measured and columns[key] == "text":
            raise InputError(f"{entry} names {shown(key)}, which is no number in the rows")
