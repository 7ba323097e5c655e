"""Charts as plain numbers: what is drawn where, before anybody chooses a drawing library.

Every chart is made of these, and both renderers, `interactive` and `static`, take them; so the same
record gives the same picture in the page and in a document. Positions are numbers on every axis: a
categorical axis has 0, 1, 2, … and says in its labels what they stand for.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from impresslearn.report.quantities import Quantity


@dataclass(frozen=True)
class Axis:
    """ticks and their labels within low to high (on a logarithmic axis as well, not exponents)."""

    title: str
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    low: float
    high: float
    log: bool = False

    @property
    def slanted(self) -> bool:
        """Whether the labels are too long to stand side by side."""
        return len(self.labels) * (2 + max(map(len, self.labels), default=0)) > 100


@dataclass(frozen=True)
class Box:
    """Quartiles; whiskers to the last values within 1.5 interquartile ranges; values beyond them.

    x: the centre; where: what x stands for, in words; values: all of them where they are few.
    """

    x: float
    where: str
    lower: float
    quartiles: tuple[float, float, float]
    upper: float
    mean: float
    count: int
    outliers: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Mark:
    """A mean at x with its interval, None where a single unit gives none.

    count: rows; units: what the interval is over, in words.
    """

    x: float
    where: str
    mean: float
    low: float | None
    high: float | None
    count: int
    units: str


@dataclass(frozen=True)
class Reference:
    """Rows that are drawn across the figure: a line at their mean in a band of ± one deviation."""

    name: str
    slot: int
    mean: float
    deviation: float
    count: int


@dataclass(frozen=True)
class BoxSeries:
    """A group's boxes."""

    name: str
    slot: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class MarkSeries:
    """A group's means."""

    name: str
    slot: int
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class BoxChart:
    """width: of a box, in units of x."""

    kind: ClassVar[str] = "box"
    title: str
    caption: str
    x: Axis
    y: Axis
    quantity: Quantity
    series: tuple[BoxSeries, ...]
    references: tuple[Reference, ...]
    width: float


@dataclass(frozen=True)
class BarChart:
    """width: of a bar, in units of x."""

    kind: ClassVar[str] = "bar"
    title: str
    caption: str
    x: Axis
    y: Axis
    quantity: Quantity
    series: tuple[MarkSeries, ...]
    references: tuple[Reference, ...]
    width: float


@dataclass(frozen=True)
class LineChart:
    """frontier: (x, y) of the means that no cheaper mean reaches."""

    kind: ClassVar[str] = "line"
    title: str
    caption: str
    x: Axis
    y: Axis
    quantity: Quantity
    series: tuple[MarkSeries, ...]
    references: tuple[Reference, ...]
    frontier: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class HeatChart:
    """values, texts inside the cells and notes on them: a row for each tick of y, lowest first.

    A value is None where nothing is known.

    scale: "probability" (notable below 0.05), "diverging" (around 0) or "sequential".
    """

    kind: ClassVar[str] = "heatmap"
    title: str
    caption: str
    x: Axis
    y: Axis
    quantity: Quantity
    value_title: str
    values: tuple[tuple[float | None, ...], ...]
    texts: tuple[tuple[str, ...], ...]
    notes: tuple[tuple[str, ...], ...]
    scale: str
    low: float
    high: float


Chart: TypeAlias = BoxChart | BarChart | LineChart | HeatChart
