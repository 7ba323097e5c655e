"""Compares the figures of documents with their records, and finds figures without a source.

A figure is a number with a unit of quality or size (UNITS), or alone in a cell of a table that is
not the first of its row. It must agree with its record in every digit that the text shows;
signs are not compared, for a text says "behind".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from impresslearn.errors import InputError
from impresslearn.experiments.figures.lookups import Lookup, lookups
from impresslearn.experiments.figures.sources import Sources, read_sources

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
UNITS = r"%|kB\b|MB\b|bytes\b|B\b|points\b"
APART = r"\s*(?:,|/|–|±|\band\b|\bor\b|\bto\b|\bagainst\b|, and\b)\s*"
FIGURES = re.compile(rf"(?<![\w.-])({NUMBER})(?:{APART}{NUMBER})*\s*\**\s*(?:{UNITS})")
ALONE = re.compile(rf"(?<=[^\n]\|)\s*\**{NUMBER}\**(?:\s*[;±]\s*{NUMBER})*\s*(?=\|)")
HOLE, SKIP = "{}", "..."


@dataclass
class Findings:
    """What a check found. faults: a line each; checked, exempt: how many figures."""

    faults: list[str] = field(default_factory=list)
    checked: int = 0
    exempt: int = 0

    @property
    def summary(self) -> str:
        """The last line."""
        return (
            f"{self.checked} figures held against records, {self.exempt} exempt, "
            f"{len(self.faults)} faults"
        )


@dataclass(frozen=True)
class Document:
    """A text, and where its figures are. spans: from start to end of each number."""

    path: str
    text: str

    def place(self, position: int) -> str:
        """FILE:LINE."""
        return f"{self.path}:{self.text.count(chr(10), 0, position) + 1}"

    def spans(self) -> set[tuple[int, int]]:
        """Where its figures are, outside of code."""
        hidden = re.sub(
            r"^```.*?^```|`[^`\n]*`", lambda m: re.sub(r"[^\n]", "x", m[0]), self.text,
            flags=re.M | re.S,
        )  # fmt: skip
        runs = [*FIGURES.finditer(hidden), *ALONE.finditer(hidden)]
        return {
            (run.start() + each.start(), run.start() + each.end())
            for run in runs
            for each in re.finditer(NUMBER, run[0])
        }

    def find(self, template: str) -> re.Match[str]:
        """The one place where the text is. Raises InputError where it is not, or more than once."""
        found = list(_pattern(template).finditer(self.text))
        if len(found) != 1:
            times = "is not there" if not found else f"is there {len(found)} times"
            raise InputError(f"{self.path}: {times}: {template!r}")
        return found[0]

    def paragraph(self, beginning: str) -> tuple[int, int]:
        """From where to where the paragraph, or item of a list, goes that begins so."""
        start = self.find(f"{beginning}").start()
        end = re.compile(r"\n\s*\n|\n- |\n\||\Z").search(self.text, start + 1)
        assert end is not None
        return start, end.start()


def check_folder(folder: Path) -> Findings:
    """Checks every document that has a file of sources in the folder; paths are from its parent's
    parent. A pattern such as docs/**/*.md stands for the documents that no other file names.
    Raises InputError for sources that cannot be used.
    """
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise InputError(f"there are no sources of figures in {folder} (*.toml)")
    root, found = folder.resolve().parent.parent, Findings()
    every = [read_sources(file) for file in files]
    named = {each.file for each in every}
    for sources in every:
        paths = [sources.file]
        if "*" in sources.file:
            there = (path.relative_to(root) for path in root.glob(sources.file))
            paths = sorted(
                {path.as_posix() for path in there if "_build" not in path.parts} - named
            )
        for path in paths:
            check_document(sources.model_copy(update={"file": path}), root, found)
    return found


def check_document(sources: Sources, root: Path, found: Findings) -> None:
    """Adds what is found in one document; paths are from root."""
    try:
        document = Document(sources.file, (root / sources.file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{sources.file} cannot be read: {error.strerror}") from None
    sourced: set[tuple[int, int]] = set()
    for said in sources.said:
        try:
            match = document.find(said.text)
            wanted = [one for each in said.sources() for one in lookups(each)]
        except InputError as error:
            found.faults.append(str(error))
            continue
        holes = list(_holes(match, said.text))
        if len(holes) != len(wanted):
            found.faults.append(
                f"{document.place(match.start())}: {len(holes)} figures in {said.text!r} have "
                f"{len(wanted)} sources"
            )
        for span, lookup in zip(holes, wanted, strict=False):
            sourced.add(span)
            found.checked += 1
            found.faults += _compared(document, span, lookup, root / sources.records)
    _find_without_source(document, sources, sourced, found)


def _compared(
    document: Document, span: tuple[int, int], lookup: Lookup, records: Path
) -> Iterator[str]:
    said = document.text[slice(*span)]
    decimals = len(said.partition(".")[2])
    try:
        value = lookup.scaled(lookup.find(records), _unit(document.text, span[1]))
    except InputError as error:
        yield f"{document.place(span[0])}: {error}"
        return
    if abs(abs(value) - float(said.replace(",", ""))) > 0.5 * 10**-decimals * (1 + 1e-6):
        digits = f"{abs(value):,.{decimals}f}"
        yield f"{document.place(span[0])}: says {said}, the record {digits} ({lookup})"


def _find_without_source(
    document: Document, sources: Sources, sourced: set[tuple[int, int]], found: Findings
) -> None:
    """Figures that have neither a source nor a reason, and reasons without a figure."""
    left = document.spans() - sourced
    for beginning, count in sources.not_in_a_record.items():
        try:
            start, end = document.paragraph(beginning)
        except InputError as error:
            found.faults.append(str(error))
            continue
        inside = {span for span in left if start <= span[0] < end}
        left -= inside
        found.exempt += len(inside)
        if len(inside) != count:
            found.faults.append(
                f"{document.place(start)}: {len(inside)} figures without a record in {beginning!r},"
                f" where {count} were stated"
            )
    for exempt in sources.exempt:
        try:
            match = document.find(exempt.text)
        except InputError as error:
            found.faults.append(str(error))
            continue
        inside = {span for span in left if match.start() <= span[0] < match.end()}
        left -= inside
        found.exempt += len(inside)
        if not inside:
            found.faults.append(f"{document.place(match.start())}: nothing to exempt")
    for start, end in sorted(left):
        line = document.text[max(0, start - 30) : end + 10].replace("\n", " ")
        found.faults.append(f"{document.place(start)}: no source for {line!r}")


def _pattern(template: str) -> re.Pattern[str]:
    """A text with {} for figures and ... for anything in the same paragraph or row."""
    parts = {HOLE: rf"({NUMBER})", SKIP: r"(?:(?!\n\s*\n|\n\||\n- ).)*?", " ": r"\s+"}
    pieces = re.split(r"(\{\}|\.\.\.|\s+)", template.strip())
    return re.compile(
        "".join(
            parts.get(each if each.strip() else " ", re.escape(each)) for each in pieces if each
        ),
        re.DOTALL,
    )


def _holes(match: re.Match[str], template: str) -> Iterator[tuple[int, int]]:
    for group in range(1, template.count(HOLE) + 1):
        yield match.span(group)


def _unit(text: str, end: int) -> str:
    """The unit behind a number, or behind the numbers that follow it."""
    units = "|".join((UNITS, r"ms\b", r"k\b", r"M\b"))
    found = re.compile(rf"\)?(?:{APART}{NUMBER})*\s*\**\s*({units})").match(text, end)
    return found[1] if found else ""
