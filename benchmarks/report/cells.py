"""Tables as people read them: in text, Markdown, LaTeX, HTML, and for rich to print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from benchmarks.report.quantities import quantity_of, spaced, word
from impresslearn.errors import visible

if TYPE_CHECKING:
    from rich.table import Table


NAME = 16
"""Characters of a name that a narrow terminal shows in a line at least."""


@dataclass(frozen=True)
class Cells:
    """A table of words; numeric tells which columns are aligned to the right."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def text(self) -> str:
        """Header and rows, in columns of equal width."""
        columns = zip(self.header, *self.rows, strict=True)
        signs = [f"{'>' if right else '<'}{max(map(len, column))}"
                 for column, right in zip(columns, self.numeric, strict=True)]  # fmt: skip
        first, *rest = ("  ".join(map(format, line, signs)) for line in (self.header, *self.rows))
        return "\n".join([first, "-" * len(first), *rest])

    def html(self) -> str:
        """Header and rows as a table element."""
        marks = [" class=right" if right else "" for right in self.numeric]

        def line(tag: str, row: Sequence[str]) -> str:
            cells = zip(marks, map(escape, row), strict=True)
            return f"<tr>{''.join(f'<{tag}{mark}>{cell}</{tag[:2]}>' for mark, cell in cells)}</tr>"

        body = "\n".join(line("td", row) for row in self.rows)
        head = line("th scope=col", self.header)
        return f"<table><thead>{head}</thead>\n<tbody>{body}</tbody></table>"

    def markdown(self) -> str:
        """The table in Markdown, with its title and note."""
        marks = ("---:" if right else "---" for right in self.numeric)
        rows = (map(escaped, row) for row in (self.header, *self.rows))
        head, *body = (f"| {' | '.join(row)} |" for row in rows)
        title = [f"**{escaped(self.title)}**", ""] if self.title else []
        note = ["", f"*{escaped(self.note)}*"] if self.note else []
        return "\n".join([*title, head, f"| {' | '.join(marks)} |", *body, *note])

    def latex(self) -> str:
        """The table in LaTeX, for the package booktabs, with its title and note as caption."""
        head, *body = (rf"{' & '.join(map(in_latex, row))} \\" for row in (self.header, *self.rows))
        caption = in_latex(": ".join(part for part in (self.title, self.note) if part))
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                *([rf"\caption{{{caption}}}"] if caption else []),
                rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in self.numeric)}}}",
                r"\toprule",
                head,
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )

    def printable(self, ruled: bool = True) -> "Table":
        """The table for rich to print, with a rule below its header."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        title, note = (Text(part) if part else None for part in (self.title, self.note))
        made = Table(
            title=title, caption=note, box=box.SIMPLE_HEAD if ruled else None, pad_edge=ruled,
            title_justify="left", caption_justify="left", title_style="bold", header_style="bold",
        )  # fmt: skip
        for place, (heading, right) in enumerate(zip(self.header, self.numeric, strict=True)):
            side: Any = "right" if right else "left"
            longest = max((len(row[place]) for row in self.rows), default=0)
            # Numbers stay whole and their headings wrap between words; names get what is left.
            least = max([longest if right else min(longest, NAME), *map(len, heading.split())])
            wide: Any = {"width": least} if right else {"min_width": least}
            made.add_column(Text(heading), justify=side, overflow="fold", **wide)
        for row in self.rows:
            made.add_row(*map(Text, row))  # Text, not str: brackets in a name are no markup
        return made


def cells_of(rows: Sequence[Mapping[str, Any]]) -> Cells:
    """Plain rows of the same keys as a table: a key's name says what its values are."""

    def cell(key: str, value: Any) -> str:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return quantity_of(key).text(value)
        return visible(word(value))

    return Cells(
        title="",
        note="",
        header=tuple(map(spaced, rows[0])),
        rows=tuple(tuple(cell(*entry) for entry in row.items()) for row in rows),
        numeric=tuple(not any(isinstance(row[key], str) for row in rows) for key in rows[0]),
    )


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, inside a table's cell."""
    flat = " ".join(text.split())
    for sign in "\\`*_[]<>|~&":
        flat = flat.replace(sign, f"\\{sign}")
    return flat


LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "²": "$^2$",
}


def in_latex(text: str) -> str:
    """Text that LaTeX shows as it is."""
    return "".join(LATEX.get(sign, sign) for sign in " ".join(text.split()))
