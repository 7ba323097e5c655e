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

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator
from typing_extensions import Self

from impresslearn.errors import InputError
from impresslearn.report.checking import Plain, shown

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

    def check_keys(self, columns: Columns, names: Iterable[str], numbers: Iterable[str]) -> None:
        """Raise InputError unless the rows have every key that is named, numbers where needed.

        names: entries that hold a key of the rows, several keys, or values by key.
        """
        for name in (*names, "where"):
            value = getattr(self, name)
            single = value is None or isinstance(value, str)
            for key in ([value] if value else []) if single else value:
                entry = name if single else f"{name}.{key}"
                if key not in columns:
                    known = ", ".join(map(repr, columns))
                    said = f"{entry} names {shown(key)}, which no row has; rows have {known}"
                    raise InputError(said)
                if name in numbers and columns[key] == "text":
                    raise InputError(f"{entry} names {shown(key)}, which is no number in the rows")


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
        names = ("x", "y", "group", "value", "text", "facet", "reference", "points")
        measured = ["value" if self.kind == "heatmap" else "y", *(["x"] if self.log_x else [])]
        self.check_keys(columns, names, measured)


class Table(Shown):
    """Means of the values for each combination of the columns, or cells as they are."""

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

    def check(self, columns: Columns) -> None:
        """Raise InputError unless the rows have every key that is named, of the right type."""
        self.check_keys(columns, ("columns", "values"), ("values",))


class Highlight(Shown):
    """The mean of a value, in large type."""

    value: str
    caption: str = ""

    def check(self, columns: Columns) -> None:
        """Raise InputError unless the rows have every key that is named, of the right type."""
        self.check_keys(columns, ("value",), ("value",))


def matches(row: Mapping[str, Any], chosen: Filter, lenient: bool = False) -> bool:
    """Whether a row has the values asked for; lenient: a key that it lacks is no hindrance."""
    return all(
        lenient if row.get(key) is None else row[key] in allowed for key, allowed in chosen.items()
    )
