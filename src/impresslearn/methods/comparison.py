"""The results of `compare` as data frames, tables and charts.

In tables, n is the number of seeds. Each seed has its own network and masks, and its own tasks if
the stream is a function of the seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import Any

from impresslearn.checks import check_choice, imported
from impresslearn.errors import InputError
from impresslearn.methods.evaluation import MEASURES, Evaluation, Row
from impresslearn.statistics import MIN_DRAWS, Summary, holm, paired_test, summarise
from impresslearn.tables import ABSENT, Table, format_interval, format_value, table_of, texts_of

ROWS = ("tasks", "runs")
SHOWN = ("accuracy", "basis_accuracy", "forgetting", "bytes_per_task", "images_per_task")


def label_of(method: str, settings: Mapping[str, Any]) -> str:
    """A method with its settings, as in "ours, sparsity=0.9"."""
    return ", ".join([method, *(f"{name}={value}" for name, value in settings.items())])


@dataclass(frozen=True)
class Run:
    """The evaluation of one method with one combination of its settings and one seed."""

    method: str
    settings: Mapping[str, Any]
    seed: int
    evaluation: Evaluation

    def columns(self) -> Row:
        """Method, settings and seed as the first columns of a row."""
        row: Row = {"method": self.method}
        for name, value in self.settings.items():
            is_plain = isinstance(value, (str, int, float)) or value is None
            row[name] = value if is_plain else repr(value)
        return row | {"seed": self.seed}


@dataclass(frozen=True)
class Comparison:
    """The runs of several methods on one stream, with tables, tests and charts.

    - runs: ordered by method, then settings, then seed
    """

    runs: tuple[Run, ...]

    @property
    def groups(self) -> dict[str, list[Run]]:
        """Label of a method with its settings -> its runs, one per seed."""
        groups: dict[str, list[Run]] = {}
        for run in self.runs:
            groups.setdefault(label_of(run.method, run.settings), []).append(run)
        return groups

    def rows(self, of: str = "tasks") -> list[Row]:
        """Dictionaries with method, settings, seed and results.

        - of: "tasks" (default) for a row per task, as in `Evaluation.rows`; "runs" for the measures
          of each run
        """
        check_choice("of", of, ROWS)
        rows = []
        for run in self.runs:
            evaluation = run.evaluation
            measured = [evaluation.summary()] if of == "runs" else evaluation.rows()
            rows += [run.columns() | row for row in measured]
        # A method that lacks a setting, or a part of the bytes, gets an empty cell.
        keys = dict.fromkeys(key for row in rows for key in row)
        return [{key: row.get(key) for key in keys} for row in rows]

    def to_frame(self, of: str = "tasks") -> Any:
        """`rows` as a pandas DataFrame. Raises MissingDependencyError without pandas."""
        pandas = imported("pandas", "a data frame needs pandas, .rows() does not", "pandas")
        return pandas.DataFrame(self.rows(of))

    def means(self, measure: str = "accuracy") -> dict[str, Summary | None]:
        """Label -> mean and interval over seeds of a measure of `Evaluation.summary`.

        The value is None if a method does not have the measure.
        """
        check_choice("measure", measure, self.runs[0].evaluation.summary())
        means: dict[str, Summary | None] = {}
        for label, runs in self.groups.items():
            values = [run.evaluation.summary()[measure] for run in runs]
            means[label] = None if None in values else summarise(values)
        return means

    def tests(self) -> list[Row]:
        """Differences in accuracy (as fractions) between every two methods, paired by seed.

        Rows have method, against, difference, half_width of the 95% interval, p_value of the paired
        t-test, p_holm (corrected for all pairs), and n, the number of seeds. Interval and p-values
        are None with fewer than five seeds; p-values also if the difference is always the same.
        """
        rows: list[Row] = []
        draws = {label: summary.draws for label, summary in self.means().items() if summary}
        for method, against in combinations(draws, 2):
            difference, p_value = paired_test(draws[method], draws[against])
            row = {"method": method, "against": against, "difference": difference.mean}
            row |= {"half_width": difference.half_width, "p_value": p_value, "p_holm": None}
            rows.append(row | {"n": len(difference.draws)})
        tested = [row for row in rows if row["p_value"] is not None]
        for row, p_value in zip(tested, holm([row["p_value"] for row in tested]), strict=True):
            row["p_holm"] = p_value
        return rows

    def tables(self) -> list[Table]:
        """The table of means, and the table of differences if there are tests."""
        means, tests, rows = self._means_table(), self.tests(), []
        if all(row["p_value"] is None for row in tests):
            return [means]
        for row in tests:
            if width := row["half_width"]:
                row["difference"] = format_interval("difference", row["difference"], width)
            keys = ("method", "against", "difference", "p_value", "p_holm")
            rows.append({key: row[key] for key in keys})
        note = f"Points ± half a 95% t interval; paired t-tests over {_counted(self._seeds)}, "
        return [means, table_of(rows, "Differences of accuracy", f"{note}corrected by Holm.")]

    def __str__(self) -> str:
        return "\n\n".join(table.text() for table in self.tables())

    def _repr_html_(self) -> str:
        return "\n".join(table.html() for table in self.tables())

    def chart(self) -> Any:
        """An Altair chart: average accuracy by number of learned tasks, and by bytes per task."""
        import altair as alt

        from impresslearn.plotting import line_chart, mark_of, styled

        so_far: list[Row] = []
        at_end: list[Row] = []
        for label, runs in self.groups.items():
            evaluations = [run.evaluation for run in runs]
            basis = evaluations[0].num_basis  # left out, so that all methods begin with one task
            for learned in range(1, max(len(each.matrix) for each in evaluations) - basis):
                last = basis + learned
                known = [each.matrix[last] for each in evaluations if last < len(each.matrix)]
                averages = [fmean(accuracies[basis:last]) for accuracies in known]
                row: Row = {"method": label, "learned": learned}
                so_far.append(row | mark_of("accuracy", summarise(averages)))
        accuracies = self.means("accuracy")
        for label, size in self.means("bytes_per_task").items():
            if size and (accuracy := accuracies[label]):
                row = {"method": label, "bytes": size.mean}
                at_end.append(row | mark_of("accuracy", accuracy))
        shown = "bands: 95% t interval" if self._seeds >= MIN_DRAWS else "points: single seeds"
        notes = [_counted(self._seeds) + (f"; {shown}" if self._seeds > 1 else "")]
        if any(run.evaluation.num_basis for run in self.runs):
            notes.append("without basis tasks")
        labels: Any = {"title": "Average accuracy so far", "x_label": "tasks learned"}
        charts = [line_chart(so_far, "learned", "accuracy", "method", notes=notes, **labels)]
        if at_end:
            labels = {"title": "Learned tasks at the end", "x_label": "bytes per task"}
            labels |= {"joined": False, "log_x": all(row["bytes"] > 0 for row in at_end)}
            charts.append(line_chart(at_end, "bytes", "accuracy", "method", **labels))
        return styled(alt.vconcat(*charts), description="Accuracy of the methods")

    def heatmap(self, x: str, y: str, measure: str = "accuracy") -> Any:
        """An Altair heat map per method: means over seeds and all settings other than x and y.

        - x, y: the names of two settings
        - measure: a measure of `Evaluation`: "accuracy" (default), "bytes_per_task" and so on

        Raises InputError if no run has both settings and the measure.
        """
        import altair as alt

        from impresslearn.plotting import heatmap, styled

        check_choice("measure", measure, MEASURES)
        cells: dict[str, dict[tuple[Any, Any], list[float]]] = {}
        for run in self.runs:
            settings, measured = run.columns(), run.evaluation.summary()[measure]
            if x in settings and y in settings and measured is not None:
                own = cells.setdefault(run.method, {})
                own.setdefault((settings[x], settings[y]), []).append(measured)
        if not cells:
            line = f"no run has {measure} and both settings, {x} and {y}; give compare both"
            raise InputError(f'{line}, as in {{"a": (make, {{"{x}": [1, 2], "{y}": [3, 4]}})}}')
        charts = []
        for method, values in cells.items():
            rows = [{x: at[0], y: at[1], measure: fmean(each)} for at, each in values.items()]
            charts.append(heatmap(rows, x, y, measure, title=method))
        return styled(alt.hconcat(*charts), description=f"{measure} over {x} and {y}")

    @property
    def _seeds(self) -> int:
        return len(next(iter(self.groups.values())))

    def _means_table(self) -> Table:
        columns = [run.columns() for run in self.runs]
        names = dict.fromkeys(name for run in self.runs for name in ("method", *run.settings))
        texts = {name: texts_of(name, (row.get(name) for row in columns)) for name in names}
        summaries = {measure: self.means(measure) for measure in SHOWN}
        accuracies = {label: each.mean for label, each in summaries["accuracy"].items() if each}
        best, rows = max(accuracies.values()) if len(accuracies) > 1 else None, []
        for label, runs in self.groups.items():
            own = runs[0].columns()
            row: Row = {name: texts[name][own.get(name)] for name in names}
            if best is not None and accuracies.get(label) == best:
                row["method"] = f"→ {row['method']}"
            for measure, means in summaries.items():
                # Leave out columns in which no method has a value.
                if any(means.values()):
                    row[measure] = _cell(measure, means[label])
            rows.append(row)
        counts = {len(run.evaluation.tasks) - run.evaluation.num_basis for run in self.runs}
        learned = " or ".join(map(str, sorted(counts)))
        note = f"Means over {_counted(self._seeds)} (n counts seeds) of {learned} learned tasks"
        if self._seeds >= MIN_DRAWS:
            note += "; ± half a 95% t interval over seeds"
        elif self._seeds > 1:
            note += f"; in brackets each seed, as fewer than {MIN_DRAWS} give no interval"
        note += "" if best is None else "; → highest mean accuracy"
        table = table_of(rows, note=f"{note}.")
        return replace(table, numeric=(False, *[True] * (len(rows[0]) - 1)))


def _counted(seeds: int) -> str:
    return f"{seeds} seed{'' if seeds == 1 else 's'}"


def _cell(measure: str, summary: Summary | None) -> str:
    """A mean as a cell; for accuracies with the interval, or with the value of each seed."""
    if summary is None:
        return ABSENT
    mean = format_value(measure, summary.mean)
    if measure != "accuracy" or not any(draw != summary.mean for draw in summary.draws):
        return f"{summary.mean:,.0f}" if measure == "images_per_task" else mean
    if summary.half_width is not None:
        return format_interval(measure, summary.mean, summary.half_width)
    return f"{mean} [{', '.join(f'{100 * draw:.1f}' for draw in summary.draws)}]"
