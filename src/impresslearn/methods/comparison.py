"""What `compare` found: as data frames, tables and charts.

The unit that n counts is the seed: a seed is one network with its masks, and its own tasks where
the stream is a function of the seed. Means over seeds have intervals from five seeds on; with fewer
the values of the seeds are shown (`impresslearn.statistics`).
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from impresslearn.checks import check_choice
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.files import write_file
from impresslearn.methods.evaluation import Evaluation
from impresslearn.statistics import MIN_DRAWS, Summary, holm, paired_test, summarise
from impresslearn.tables import (
    ABSENT,
    Table,
    format_interval,
    format_value,
    kind_of,
    table_of,
)

Row = dict[str, Any]
ROWS = ("tasks", "runs", "matrix")
WIDTH = 80
SHOWN_DRAWS = 4  # values of seeds that a cell has room for; fewer than five have no interval


def label_of(method: str, settings: Mapping[str, Any]) -> str:
    """A method with its settings, as in "ours, sparsity=0.9"."""
    return ", ".join([method, *(f"{name}={value}" for name, value in settings.items())])


@dataclass(frozen=True)
class Run:
    """One method with one combination of its settings on one seed."""

    method: str
    settings: Mapping[str, Any]
    seed: int
    evaluation: Evaluation

    @property
    def label(self) -> str:
        """The method and its settings."""
        return label_of(self.method, self.settings)

    def columns(self) -> Row:
        """What tells runs apart, as plain values: method, settings, seed."""
        plain = {
            name: value if isinstance(value, (str, int, float)) or value is None else repr(value)
            for name, value in self.settings.items()
        }
        return {"method": self.method, **plain, "seed": self.seed}


@dataclass(frozen=True)
class Comparison:
    """Runs of several methods on one stream.

    - runs: in the order of the methods, their settings and the seeds
    """

    runs: tuple[Run, ...]

    @property
    def groups(self) -> dict[str, list[Run]]:
        """The runs by method and settings, a run per seed each."""
        groups: dict[str, list[Run]] = {}
        for run in self.runs:
            groups.setdefault(run.label, []).append(run)
        return groups

    @property
    def settings(self) -> list[str]:
        """The names of the settings that any method has."""
        return list(dict.fromkeys(name for run in self.runs for name in run.settings))

    def rows(self, of: str = "tasks") -> list[Row]:
        """Plain rows with method, settings and seed.

        - of: "tasks", a row per task as in `Evaluation.rows`; "runs", the measures of each run; or
          "matrix", the accuracy on each task after each number of learned tasks
        """
        check_choice("of", of, ROWS)
        rows = []
        for run in self.runs:
            evaluation = run.evaluation
            if of == "runs":
                found = [evaluation.summary()]
            elif of == "tasks":
                found = evaluation.rows()
            else:
                found = [
                    {"learned": learned, "task": task, "accuracy": accuracy}
                    for learned, accuracies in enumerate(evaluation.matrix)
                    for task, accuracy in zip(evaluation.tasks, accuracies, strict=True)
                    if not isnan(accuracy)
                ]
            rows += [run.columns() | row for row in found]
        # A method without a setting or a part of the bytes has an empty cell there.
        keys = dict.fromkeys(key for row in rows for key in row)
        return [{key: row.get(key) for key in keys} for row in rows]

    def to_frame(self, of: str = "tasks") -> Any:
        """`rows` as a pandas DataFrame; settings are columns.

        Raises MissingDependencyError without pandas.
        """
        try:
            import pandas
        except ImportError:
            raise MissingDependencyError(
                "a data frame needs pandas: pip install 'impresslearn[pandas]'; or take .rows()"
            ) from None
        return pandas.DataFrame(self.rows(of))

    def means(self, measure: str = "accuracy") -> dict[str, Summary | None]:
        """Mean and interval of a measure of `Evaluation.summary` over seeds, by label.

        None where a method does not have the measure.
        """
        known = self.runs[0].evaluation.summary()
        check_choice("measure", measure, known)
        means: dict[str, Summary | None] = {}
        for label, runs in self.groups.items():
            values = [run.evaluation.summary()[measure] for run in runs]
            means[label] = None if None in values else summarise(values, "seed")
        return means

    def tests(self, reference: str | None = None) -> list[Row]:
        """Differences of accuracy between methods, paired by seed, in fractions.

        - reference: the label that others are tested against; by default every pair

        Rows have method, against, difference, half_width of the 95% interval, p_value of the paired
        t-test, p_holm corrected for all pairs here, and n seeds. Interval and test are None for
        fewer than five seeds, and where the difference is the same for every seed.
        """
        labels = list(self.groups)
        if reference is not None:
            check_choice("reference", reference, labels)
        rows = []
        for method, against in combinations(labels, 2):
            if reference not in (None, method, against):
                continue
            if method == reference:
                method, against = against, method
            first, second = (
                {run.seed: run.evaluation.accuracy for run in self.groups[label]}
                for label in (method, against)
            )
            seeds = [seed for seed in first if seed in second]
            test = paired_test([first[s] for s in seeds], [second[s] for s in seeds])
            rows.append(
                {"method": method, "against": against, "difference": test.difference}
                | {"half_width": test.half_width, "p_value": test.p_value, "p_holm": None}
                | {"n": len(seeds)}
            )
        tested = [row for row in rows if row["p_value"] is not None]
        corrected = holm([row["p_value"] for row in tested])
        for row, p_value in zip(tested, corrected, strict=True):
            row["p_holm"] = p_value
        return rows

    def tables(self) -> list[Table]:
        """The means, the bytes by part, and the differences where there are tests."""
        tables = [self._means_table()]
        sizes = self._bytes_rows()
        if sizes:
            title = "Bytes per learned task, by part"
            tables.append(table_of(sizes, title=title))
        tests = self.tests()
        if any(row["p_value"] is not None for row in tests):
            shown = []
            for row in tests:
                cells = {"method": row["method"], "against": row["against"]}
                difference = format_value("difference", row["difference"])
                if row["half_width"] is not None:
                    half = row["half_width"]
                    difference = format_interval("difference", row["difference"], half)
                cells |= {"difference": difference, "p": format_value("p_value", row["p_value"])}
                shown.append(cells | {"p (Holm)": format_value("p_holm", row["p_holm"])})
            note = "points ± half a 95% t interval; paired t-tests over seeds, corrected by Holm"
            table = table_of(shown, title="Differences of accuracy", note=note)
            numeric = (False, False, True, True, True)
            tables.append(Table(table.header, table.rows, numeric, table.title, note))
        return tables

    def table(self, width: int = WIDTH) -> str:
        """The tables as text.

        - width: characters per line at most
        """
        return "\n\n".join(table.text(width) for table in self.tables())

    def to_latex(self) -> str:
        """The tables in LaTeX, for the package booktabs."""
        return "\n\n".join(table.latex() for table in self.tables())

    def to_csv(self, path: str | os.PathLike | None = None, of: str = "tasks") -> str:
        """`rows` as CSV text, which is also written to `path` where one is given."""
        rows = self.rows(of)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        if path is not None:
            write_file(path, text.getvalue())
        return text.getvalue()

    def chart(self, x: str | None = None, y: str | None = None, measure: str = "accuracy") -> Any:
        """An Altair chart.

        - x, y: settings of a grid: with both a heat map, with x alone a line per method. By default
          the settings where a grid has two that vary; otherwise the average accuracy over the tasks
          learned so far, and the accuracy against bytes per task
        - measure: of a grid, one of `Evaluation.summary`
        """
        from impresslearn.plotting import styled  # Altair takes a second to import

        if x is None and y is None:
            varying = self._varying()
            if len(varying) != 2:
                return styled(self._accuracy_chart(), description="Accuracy of the methods")
            x, y = varying
        for name in filter(None, (x, y)):
            check_choice("a setting to draw", name, self.settings)
        return styled(self._grid_chart(x or y or "", y if x else None, measure))

    def save_chart(self, path: str | os.PathLike, **chosen: Any) -> Path:
        """Writes `chart` as a picture.

        - path: ends in .svg, .pdf or .png
        - chosen: arguments of `chart`
        """
        from impresslearn.plotting import save_chart

        return save_chart(self.chart(**chosen), path)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        parts = []
        for table in self.tables():
            title = f"<p><b>{table.title}</b></p>" if table.title else ""
            parts.append(f"{title}{table.html()}<p>{table.note}</p>")
        return "\n".join(parts)

    def _means_table(self) -> Table:
        measures = ["accuracy", "basis_accuracy", "forgetting", "bytes_per_task", "images_per_task"]
        summaries = {measure: self.means(measure) for measure in measures}
        # Columns in which no method has a value say nothing.
        measures = [name for name in measures if any(summaries[name].values())]
        rows = []
        for label, runs in self.groups.items():
            plain = runs[0].columns()
            names = ["method", *self.settings]
            row: Row = {name: format_value(name, plain.get(name)) for name in names}
            for measure in measures:
                row[measure] = _cell(measure, summaries[measure][label])
            rows.append(row)
        table = table_of(rows)
        numeric = tuple(name != "method" for name in rows[0])
        return Table(table.header, table.rows, numeric, note=self._note())

    def _note(self) -> str:
        evaluation = self.runs[0].evaluation
        count = len(next(iter(self.groups.values())))
        learned = len(evaluation.tasks) - evaluation.num_basis
        unit = f"{count} seed{'' if count == 1 else 's'}"
        note = f"Means over {unit} (n counts seeds) of {learned} learned tasks"
        if any(run.evaluation.num_basis for run in self.runs):
            note += ", basis tasks apart"
        if count >= MIN_DRAWS:
            note += "; ± half a 95% t interval over seeds"
        elif count > 1:
            note += f"; in brackets each seed, as fewer than {MIN_DRAWS} give no interval"
        return note + ". Images: steps × batch."

    def _bytes_rows(self) -> list[Row]:
        """Mean bytes of a learned task by part, for the methods that say them."""
        rows = []
        for label, runs in self.groups.items():
            sizes: dict[str, list[float]] = {}
            for run in runs:
                evaluation = run.evaluation
                for task in evaluation.tasks[evaluation.num_basis :]:
                    for part, size in evaluation.breakdown.get(task, {}).items():
                        sizes.setdefault(part, []).append(size)
            if sizes:
                rows.append({"method": label} | {name: fmean(of) for name, of in sizes.items()})
        parts = dict.fromkeys(key for row in rows for key in row)
        used = [part for part in parts if any(row.get(part) for row in rows)]
        return [
            {"method": row["method"]}
            | {part: format_value("bytes", row.get(part)) for part in used if part != "method"}
            for row in rows
        ]

    def _varying(self) -> list[str]:
        """The settings with more than one value."""
        values: dict[str, set[str]] = {}
        for run in self.runs:
            for name, value in run.settings.items():
                values.setdefault(name, set()).add(repr(value))
        return [name for name, seen in values.items() if len(seen) > 1]

    def _accuracy_chart(self) -> Any:
        import altair as alt

        from impresslearn.plotting import line_chart

        over_tasks, at_end = [], []
        for label, runs in self.groups.items():
            evaluations = [run.evaluation for run in runs]
            for learned in range(1, len(evaluations[0].matrix)):
                means = [fmean(each.matrix[learned][:learned]) for each in evaluations]
                row = {"method": label, "learned": learned}
                over_tasks.append(row | _mark("accuracy", summarise(means, "seed")))
            sizes = [each.bytes_per_task for each in evaluations]
            if None not in sizes:
                summary = summarise([each.accuracy for each in evaluations], "seed")
                row = {"method": label, "bytes": fmean(size for size in sizes if size is not None)}
                at_end.append(row | _mark("accuracy", summary))
        count = len(next(iter(self.groups.values())))
        shown = "bands: 95% t interval" if count >= MIN_DRAWS else "points: single seeds"
        note = f"{count} seeds; {shown}" if count > 1 else "1 seed"
        charts = [
            line_chart(
                over_tasks, "learned", "accuracy", "method", title="Average accuracy so far",
                x_label="tasks learned", y_label="accuracy", notes=[note],
            )
        ]  # fmt: skip
        if at_end:
            charts.append(
                line_chart(
                    at_end, "bytes", "accuracy", "method", title="Learned tasks at the end",
                    x_label="bytes per task", y_label="accuracy", joined=False,
                    log_x=all(row["bytes"] > 0 for row in at_end),
                )
            )  # fmt: skip
        return alt.hconcat(*charts)

    def _grid_chart(self, x: str, y: str | None, measure: str) -> Any:
        import altair as alt

        from impresslearn.plotting import heatmap, line_chart

        summaries = self.means(measure)
        rows = []
        for label, runs in self.groups.items():
            summary, columns = summaries[label], runs[0].columns()
            if summary is not None and x in columns and (y is None or y in columns):
                rows.append(columns | _mark(measure, summary))
        if not rows:
            raise InputError(f"no method has {measure} and the settings {x}{f', {y}' if y else ''}")
        if y is None:
            return line_chart(rows, x, measure, "method", x_label=x, y_label=measure)
        charts = []
        for method in dict.fromkeys(row["method"] for row in rows):
            # Other settings that vary are averaged over: a cell is one pair of x and y.
            cells: dict[tuple[Any, Any], list[float]] = {}
            for row in rows:
                if row["method"] == method:
                    cells.setdefault((row[x], row[y]), []).append(row[measure])
            means = [{x: at[0], y: at[1], measure: fmean(of)} for at, of in cells.items()]
            charts.append(heatmap(means, x, y, measure, title=method))
        return charts[0] if len(charts) == 1 else alt.hconcat(*charts)


def _mark(key: str, summary: Summary) -> Row:
    """A summary as a mark of a chart: its interval, or its draws where it has none."""
    mark: Row = {key: summary.mean}
    if summary.half_width is not None:
        mark |= {
            "low": summary.mean - summary.half_width,
            "high": summary.mean + summary.half_width,
        }
    elif len(summary.draws) > 1:
        mark["draws"] = summary.draws
    return mark


def _cell(key: str, summary: Summary | None) -> str:
    if summary is None:
        return ABSENT
    if kind_of(key) in ("fraction", "points") and key != "forgetting":
        return summary.text(
            lambda value: format_value(key, value),
            lambda mean, half: format_interval(key, mean, half),
        )
    return format_value(key, summary.mean)
