"""What a run's parts found: as kept outcomes, as rows of its record, for TensorBoard.

A trial is one method on one seed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from impresslearn.errors import MissingDependencyError
from impresslearn.experiments.statistics import holm, paired_test
from impresslearn.experiments.targets.plan import Planned, Row
from impresslearn.experiments.work.custom import INFERENCE
from impresslearn.methods import Evaluation
from impresslearn.methods.results import MEASURES

EXACT = 1e-9
"""Points below which an interval is none: the difference is the same for every seed."""


def restored(row: Mapping[str, Any]) -> Evaluation:
    """The evaluation behind stored values."""
    tasks = tuple(row["tasks"])
    sizes, roles = (
        {task: value for task, value in zip(tasks, row[name], strict=True) if value is not None}
        for name in ("added_bytes", "roles")
    )
    matrix = tuple(tuple(nan if v is None else v for v in each) for each in row["matrix"])
    return Evaluation(tasks, matrix, sizes, roles, 0.0)


def rows_of_trials(
    outcomes: Sequence[Mapping[str, Any]], reference: str | None = None
) -> list[Row]:
    """The rows of a run's record, of four kinds, from the stored values of trials.

    `learned` tasks so far (0 to T), the task evaluated and its `place` (1 to T), whether it is
    `seen`, and its accuracy where it is known; a task's role, bytes and final accuracy; the
    measures of a trial; and of every two methods, or of each and `reference`, the difference.
    """
    rows = [row for outcome in outcomes for row in _rows(outcome)]
    return rows + list(_differences(rows, reference))


def _differences(rows: Sequence[Row], reference: str | None = None) -> Iterator[Row]:
    """`method` against another: the difference of average accuracy, in points, paired by seed.

    With half its 95% t interval, the p-value of the paired t-test and that corrected by Holm for
    all pairs of methods that are tested: not those where neither method varies with the seed. None
    where there are fewer than two seeds.
    """
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if "average_accuracy" in row:
            found[row["method"]][row["seed"]] = 100 * row["average_accuracy"]
    seeds = sorted(set.intersection(*map(set, found.values()))) if found else []
    if len(seeds) < 2:
        return
    pairs = [
        (other, method) if method == reference else (method, other)
        for method, other in combinations(found, 2)
        if reference in (None, method, other)
    ]
    tests = [paired_test(*([found[name][seed] for seed in seeds] for name in two)) for two in pairs]
    vary = [place for place, test in enumerate(tests) if test.half_width > EXACT]
    corrected = dict(zip(vary, holm([tests[place].p_value for place in vary]), strict=True))
    for place, ((method, other), test) in enumerate(zip(pairs, tests, strict=True)):
        row = {"method": method, "against": other, "seeds": test.count}
        row["difference"] = test.difference
        if place in corrected:
            row |= {"half_width": test.half_width, "p_value": test.p_value}
            row["corrected_p_value"] = corrected[place]
        yield row


def _rows(outcome: Mapping[str, Any]) -> Iterator[Row]:
    whose = {key: outcome[key] for key in ("method", "seed")}
    found = restored(outcome)
    for learned, accuracies in enumerate(found.matrix):
        for place, (task, accuracy) in enumerate(zip(found.tasks, accuracies, strict=True), 1):
            where = {"learned": learned, "task": task, "place": place, "seen": place <= learned}
            if not isnan(accuracy):
                yield {**whose, **where, "accuracy": accuracy}
    for place, row in enumerate(found.rows(), start=1):
        known = {key: row[key] for key in ("role", "bytes") if row[key] is not None}
        final = {"final_accuracy": row["accuracy"]}
        yield {**whose, "task": row["task"], "place": place, **known, **final}
    measures = found.summary().items()
    inference = {key: outcome[key] for key in INFERENCE if key in outcome}
    known = {key: each for key, each in measures if each is not None and key != "seconds"}
    yield whose | known | inference


def summaries(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """{method, seeds, and each measure's mean over them, None where one is unknown}, a method an
    entry, from the rows of a record. Those of task inference only where it was asked for.
    """
    trials = defaultdict(list)
    for row in rows:
        if "average_accuracy" in row:
            trials[row["method"]].append(row)
    asked = [key for key in INFERENCE if any(key in row for row in rows)]
    return [
        {"method": method, "seeds": len(each)}
        | {
            key: fmean(row[key] for row in each) if all(key in row for row in each) else None
            for key in (*MEASURES, "bytes_per_task", *asked)
        }
        for method, each in trials.items()
    ]


def summary_writer() -> Any:
    """TensorBoard's writer of events. Raises MissingDependencyError where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependencyError(
            "[run]: tensorboard needs a package: pip install 'impresslearn[tensorboard]'"
        ) from None
    return SummaryWriter


def write_events(folder: Path, parts: Sequence[Planned], rows: Sequence[Row]) -> None:
    """A run of TensorBoard's for each trial, by tasks learned; those that are there are left alone.

    rows: of the record of these parts.
    """
    writer_class = summary_writer()
    for part in parts:
        label = re.sub(r"[^A-Za-z0-9._-]", "_", part.columns["method"])
        target = folder / label / f"seed-{part.columns['seed']}-{part.job.key[:8]}"
        if target.exists():
            continue
        own = [row for row in rows if part.columns.items() <= row.items()]
        by_learned = defaultdict(list)
        with writer_class(str(target)) as writer:
            for row in own:
                if row.get("seen"):
                    writer.add_scalar(f"accuracy/{row['task']}", row["accuracy"], row["learned"])
                    by_learned[row["learned"]].append(row["accuracy"])
            for learned, accuracies in by_learned.items():
                writer.add_scalar("average_accuracy", fmean(accuracies), learned)
            for name, value in own[-1].items():
                if name not in part.columns:
                    writer.add_scalar(f"final/{name}", value, len(by_learned))
