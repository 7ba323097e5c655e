"""What a record asks to be shown: its figures and tables, checked against the rows.

    {"kind": "box",      x, y, group?, reference?, order?}
    {"kind": "line",     x, y, group?, reference?, order?, log_x?, points?, frontier?, ours?}
    {"kind": "bar",      x, y, group?, reference?, order?}
    {"kind": "heatmap",  x, y, value, text?, compare?}
    all figures          title?, caption?, where?, x_label?, y_label?
    tables               title?, where?, columns and values | header and rows_verbatim

x, y, group, value, text name keys of the rows. `where` and `reference` choose rows by their values,
{"sparsity": 0.9} or {"method": ["supsup", "X"]}; rows of the reference are drawn across the figure
and not inside it. `points` names keys: rows of a group that agree in them are one point of a line,
instead of those that agree in x. `ours` names groups: the frontier is drawn over them. `order`
names groups in the order that is wanted. `compare` {"by": key, "of": key} tests the rows of the
first two values of `by` against each other in every cell; it makes the values p_value and
difference (second minus first, of accuracies in percentage points).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

from impresslearn.errors import InputError
from impresslearn.report.checks import flag, is_list, kind, listed, require, shown, text, texts

Filter: TypeAlias = Mapping[str, tuple[Any, ...]]
Columns: TypeAlias = Mapping[str, str]
"""Key of the rows -> "number", "text" or "flag"."""

COMPARED = ("p_value", "difference")


@dataclass(frozen=True, kw_only=True)
class BoxFigure:
    """Boxes of y, by group, at the values of x."""

    kind: ClassVar[str] = "box"
    x: str
    y: str
    group: str | None = None
    title: str = ""
    caption: str = ""
    where: Filter = field(default_factory=dict)
    reference: Filter = field(default_factory=dict)
    order: tuple[str, ...] = ()
    x_label: str = ""
    y_label: str = ""


@dataclass(frozen=True, kw_only=True)
class BarFigure:
    """Means of y with their intervals as bars, by group, at the values of x."""

    kind: ClassVar[str] = "bar"
    x: str
    y: str
    group: str | None = None
    title: str = ""
    caption: str = ""
    where: Filter = field(default_factory=dict)
    reference: Filter = field(default_factory=dict)
    order: tuple[str, ...] = ()
    x_label: str = ""
    y_label: str = ""


@dataclass(frozen=True, kw_only=True)
class LineFigure:
    """Means of y with their intervals over x, a line a group."""

    kind: ClassVar[str] = "line"
    x: str
    y: str
    group: str | None = None
    title: str = ""
    caption: str = ""
    where: Filter = field(default_factory=dict)
    reference: Filter = field(default_factory=dict)
    order: tuple[str, ...] = ()
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    points: tuple[str, ...] = ()
    frontier: bool = False
    ours: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeatmapFigure:
    """The mean of a value in every cell of x and y."""

    kind: ClassVar[str] = "heatmap"
    x: str
    y: str
    value: str
    text: str | None = None
    compare: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    caption: str = ""
    where: Filter = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""


@dataclass(frozen=True, kw_only=True)
class MeanTable:
    """Mean and interval of each value, a row for each combination of the columns."""

    columns: tuple[str, ...]
    values: tuple[str, ...]
    title: str = ""
    where: Filter = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VerbatimTable:
    """Cells as they are."""

    header: tuple[str, ...]
    rows_verbatim: tuple[tuple[Any, ...], ...]
    title: str = ""


Figure: TypeAlias = BoxFigure | BarFigure | LineFigure | HeatmapFigure
TableOf: TypeAlias = MeanTable | VerbatimTable
KINDS: Mapping[str, type[Figure]] = {
    each.kind: each for each in (BoxFigure, LineFigure, BarFigure, HeatmapFigure)
}


def parse_figure(raw: Any, place: str, columns: Columns) -> Figure:
    """The figure that a plain mapping describes. Raises InputError naming the place."""
    require(isinstance(raw, Mapping), f"{place} must be a mapping, got {kind(raw)}")
    name = raw.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        raise InputError(f"{place}.kind must be one of {listed(KINDS)}, got {shown(name)}")
    rest = {key: value for key, value in raw.items() if key != "kind"}
    figure: Figure = _parsed(KINDS[name], rest, place, f"a {name} figure")
    made: Sequence[str] = ()
    if isinstance(figure, HeatmapFigure):
        wanted: list[tuple[str, str | None, bool]] = [
            ("value", figure.value, True),
            ("text", figure.text, False),
        ]
        if figure.compare:
            made = COMPARED
            of = figure.compare["of"]
            _key(figure.compare["by"], f"{place}.compare.by", columns)
            _key(of, f"{place}.compare.of", columns, numeric=True)
    else:
        wanted = [("y", figure.y, True), ("group", figure.group, False)]
    _key(figure.x, f"{place}.x", columns, numeric=getattr(figure, "log_x", False))
    if isinstance(figure, HeatmapFigure):
        _key(figure.y, f"{place}.y", columns)
    for entry, key, numeric in wanted:
        if key is not None and key not in made:
            _key(key, f"{place}.{entry}", columns, numeric)
    for key in (*figure.where, *getattr(figure, "reference", ()), *getattr(figure, "points", ())):
        _key(key, f"{place} (where, reference, points)", columns)
    return figure


def parse_table(raw: Any, place: str, columns: Columns) -> TableOf:
    """The table that a plain mapping describes. Raises InputError naming the place."""
    require(isinstance(raw, Mapping), f"{place} must be a mapping, got {kind(raw)}")
    if "rows_verbatim" not in raw:
        table: MeanTable = _parsed(MeanTable, raw, place, "a table")
        require(bool(table.columns and table.values), f"{place} needs columns and values")
        for key in (*table.columns, *table.where):
            _key(key, f"{place} (columns, where)", columns)
        for key in table.values:
            _key(key, f"{place}.values", columns, numeric=True)
        return table
    verbatim: VerbatimTable = _parsed(VerbatimTable, raw, place, "a table with rows_verbatim")
    for position, row in enumerate(verbatim.rows_verbatim):
        require(
            len(row) == len(verbatim.header),
            f"{place}.rows_verbatim[{position}] must have {len(verbatim.header)} cells like the "
            f"header, got {len(row)}",
        )
    return verbatim


def matches(row: Mapping[str, Any], chosen: Filter, lenient: bool = False) -> bool:
    """Whether a row has the values asked for; lenient: a key that it lacks is no hindrance."""
    for key, allowed in chosen.items():
        if row.get(key) is None:
            if not lenient:
                return False
        elif row[key] not in allowed:
            return False
    return True


def _parsed(shape: type, raw: Mapping[str, Any], place: str, what: str) -> Any:
    known = {each.name: each for each in fields(shape)}
    for name in raw:
        require(name in known, f"{place} has {name!r}, but {what} takes {listed(known)}")
    missing = [
        name
        for name, each in known.items()
        if each.default is MISSING and each.default_factory is MISSING and name not in raw
    ]
    require(not missing, f"{place} lacks {listed(missing)}")
    return shape(
        **{
            name: _CHECKS.get(name, text)(value, f"{place}.{name}")
            for name, value in raw.items()
            if value is not None
        }
    )


def _key(name: str, place: str, columns: Columns, numeric: bool = False) -> None:
    if name not in columns:
        raise InputError(f"{place} names {name!r}, which no row has; rows have {listed(columns)}")
    if numeric and columns[name] == "text":
        raise InputError(f"{place} names {name!r}, which is no number in the rows")


def _filter(value: Any, place: str) -> Filter:
    require(isinstance(value, Mapping), f"{place} must be a mapping, got {shown(value)}")
    chosen = {key: tuple(wanted) if is_list(wanted) else (wanted,) for key, wanted in value.items()}
    for key, wanted in chosen.items():
        for each in wanted:
            good = isinstance(each, (str, bool, int, float))
            require(good, f"{place}.{key} must be a text or a number, got {shown(each)}")
    return chosen


def _comparison(value: Any, place: str) -> Mapping[str, str]:
    good = isinstance(value, Mapping) and set(value) == {"by", "of"}
    require(good, f"{place} must be {{'by': key, 'of': key}}, got {shown(value)}")
    return {name: text(key, f"{place}.{name}") for name, key in value.items()}


def _cells(value: Any, place: str) -> tuple[tuple[Any, ...], ...]:
    require(is_list(value), f"{place} must be a list of rows, got {shown(value)}")
    for position, row in enumerate(value):
        require(is_list(row), f"{place}[{position}] must be a list of cells, got {shown(row)}")
        for column, cell in enumerate(row):
            good = cell is None or isinstance(cell, (str, bool, int, float))
            require(
                good and cell == cell,
                f"{place}[{position}][{column}] must be a text or a number, got {shown(cell)}",
            )
    return tuple(map(tuple, value))


_CHECKS: Mapping[str, Callable[[Any, str], Any]] = {
    "where": _filter,
    "reference": _filter,
    "compare": _comparison,
    "rows_verbatim": _cells,
    "log_x": flag,
    "frontier": flag,
    **dict.fromkeys(("order", "points", "ours", "columns", "values", "header"), texts),
}
