"""Tables of pages that are made from committed records when the site is built.

```{record-table} switching
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from impresslearn.report.quantities import percent, signed, size
from impresslearn.report.records import read_record
from impresslearn.report.statistics import grouped, summarise

ROOT = Path(__file__).parents[2]
MEANINGS = {
    "mix_step_ratio_10": "a coefficient step over 10 masks; a plain training step",
    "mix_step_ratio_100": "a coefficient step over 100 masks; a plain training step",
    "mix_vs_loop": "that step; a loop over masks of floats",
    "mix_vs_dense": "that step; one product with all masks as floats",
    "popup_step_ratio": "an edge-popup step; a plain training step",
    "popup_vs_sort": "an edge-popup step; edge-popup that sorts the scores",
    "kernels_two_threads": "both kernels over 100 masks on two threads; on one",
    "inference_gradient_ratio": "a gradient over 100 superposed tasks; a training step",
    "coefficient_epoch": "60,000 images over 100 masks; the loop over masks of floats, with images "
    "transformed one by one",
    "popup_epoch": "60,000 images of edge-popup; the same with a sort, images one by one",
    "few_labels_task": "a task from 200 examples, over 10 masks",
    "linear_in_masks": "what 180 more masks add to a step; nine times what 20 more add",
    "task_2000_vs_task_2": "learning a task after 2,000 others; learning one after none",
    "resnet18_step_ratio": "a coefficient step of ResNet-18, 10 masks; a plain training step",
    "bank_bytes": "100 masks in memory; one bit a weight",
    "peak_growth_10_masks": "what a step over 10 masks adds to the most memory held",
    "peak_growth_1000_masks": "the same over 1,000 masks",
    "first_use": "until the compiled loops have run once; no earlier use on the machine",
    "later_use": "the same with their cache",
}

MNIST = {"permuted-mnist": "permutations", "rotated-mnist": "rotations"}
BENCHMARKS = MNIST | {"split-cifar100": "CIFAR-100"}
Rows = Iterable[list[str]]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("record-table", RecordTable)
    return {"parallel_read_safe": True}


class RecordTable(SphinxDirective):
    """A table from a committed record."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        record, table = TABLES[self.arguments[0]]
        self.env.note_dependency(str(ROOT / record))
        head, *rows = table(ROOT / record)
        lines = [head, ["---"] * len(head), *rows]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def switching(path: Path) -> Rows:
    """What switching between tasks costs."""
    record = json.loads(path.read_text(encoding="utf-8"))
    yield [
        "tasks", "bytes a task", "store", "opening it", "predicting, other task than before",
        "predicting, same task", "most memory held",
    ]  # fmt: skip
    for row in record["rows"]:
        yield [
            f"{row['tasks']:,}",
            str(row["bytes_per_task"]),
            f"{row['file_bytes'] / 1e6:.2f} MB",
            f"{row['open_ms']:.0f} ms",
            f"{row['switch_ms']:.2f} ms",
            f"{row['same_task_ms']:.2f} ms",
            f"{row['peak_memory_MiB']} MiB",
        ]


def advice(path: Path) -> Rows:
    """How good advice is beside a full search, and how much time it takes of it."""
    yield ["tasks", "budget", "advice", "full search", "difference", "tasks evaluated", "seconds"]
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        told = (
            f"{row[way].rpartition(', price ')[0]}: {percent(row[accuracy])} ({row[taken]:,.0f} B)"
            for way, accuracy, taken in (
                ("advised", "accuracy", "bytes_per_task"),
                ("full_search", "full_accuracy", "full_bytes"),
            )
        )
        yield [
            row["tasks"],
            size(row["budget"]),
            *told,
            f"{signed(row['difference'])} ± {row['half_width']:.1f}",
            str(row["n"]),
            f"{row['seconds']:,.0f} of {row['full_seconds']:,.0f}",
        ]


def bench(path: Path) -> Rows:
    """What `impresslearn bench` measures."""
    record = json.loads(path.read_text(encoding="utf-8"))
    yield ["what; its reference", "measured", "reference", "ratio"]
    for row in record:
        unit, against = row["unit"], row["reference"]
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} ({row['meaning']})"
        yield [
            f"{MEANINGS[row['name']]} (`{row['name']}`)",
            f"{row['value']:,.4g} {unit}" if row["value"] < 1e4 else f"{row['value']:,.0f} {unit}",
            "" if against is None else f"{against:,.4g} {unit}" if against < 1e4
            else f"{against:,.0f} {unit}",
            ratio,
        ]  # fmt: skip


def budgets(path: Path, kinds: Mapping[str, str]) -> Rows:
    """The best of ours and the best other method at each budget of bytes, by benchmark."""
    yield ["budget"] + [
        f"{kind}: {column}"
        for kind in kinds.values()
        for column in ("ours", "best other", "difference")
    ]
    rows: dict[float, list[str]] = {}
    for row in read_record(path).rows:
        if row["role"] == "budget" and row["benchmark"] in kinds and "ours" in row:
            ours, other = (row[side].partition(":")[0] for side in ("ours", "other"))
            rows.setdefault(row["budget"], []).extend(
                [
                    f"{percent(row['accuracy'])}, {ours.partition(', ')[2]}",
                    f"{percent(row['other_accuracy'])}, {other}",
                    f"{signed(row['difference'])} ± {row['half_width']:.1f}",
                ]
            )
    for budget, cells in rows.items():
        yield [size(budget), *cells]


def curves(path: Path) -> Rows:
    """Every method's bytes of a prediction and accuracy at each of its settings."""
    yield ["method", *BENCHMARKS.values()]
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    rows = [row for row in read_record(path).rows if row["role"] == "evaluation"]
    settings = grouped(rows, lambda row: (row["method"], row["benchmark"], row["setting"]))
    for (method, benchmark, _), of in settings.items():
        point = tuple(summarise(of, key).mean for key in ("prediction_bytes", "accuracy"))
        found.setdefault(method, {}).setdefault(benchmark, []).append(point)
    for method, points in found.items():
        curve = [sorted(points.get(benchmark, [])) for benchmark in BENCHMARKS]
        yield [
            method,
            *("; ".join(f"{size(round(b))}: {percent(a)}" for b, a in of) for of in curve),
        ]


def methods(path: Path) -> Rows:
    """Every method and setting by its bytes: accuracy over the tasks, bytes and seconds of one."""
    yield ["method, setting", "accuracy", "bytes", "seconds"]
    rows = [row for row in read_record(path).rows if row["role"] == "evaluation"]
    settings = grouped(rows, lambda row: (row["method"], row["setting"]))
    means = {key: summarise(of, "bytes_per_task").mean for key, of in settings.items()}
    for key in sorted(means, key=means.__getitem__):
        told = summarise(settings[key], "accuracy")
        every = [row["accuracy"] for row in settings[key]]
        yield [
            ", ".join(key),
            f"{100 * told.mean:.1f} ± {100 * told.half_width:.1f}% "
            f"({100 * min(every):.1f}–{100 * max(every):.1f})",
            f"{means[key]:,.0f}",
            f"{summarise(settings[key], 'seconds').mean:.0f}",
        ]


def searches(path: Path) -> Rows:
    """How many tasks each search finds, and in how many seconds, by tasks and inputs."""
    names = {
        "exhaustive": "every task run",
        "halving": "halving",
        "shortlist": "one-shot, its best 16 run",
        "one_shot": "one-shot as published",
    }
    yield ["inputs of", "tasks", "inputs", *names.values()]
    rows = [row for row in read_record(path).rows if row["kind"] == "search"]
    cells = grouped(rows, lambda row: (row["benchmark"], row["tasks"], row["inputs"]))
    for (benchmark, tasks, inputs), of in cells.items():
        found = {row["search"]: f"{row['found']:.0%} ({row['seconds']:.3f})" for row in of}
        yield [benchmark, f"{tasks:,}", str(inputs), *(found.get(name, "–") for name in names)]


def foreign(path: Path) -> Rows:
    """How well each score tells inputs of no task: false accepts, and AUROC."""
    rows = [row for row in read_record(path).rows if "auroc" in row]
    scores = list(dict.fromkeys(row["score"] for row in rows))
    yield ["tasks of", "inputs of no task", "inputs", *scores, "the default's own limit"]
    cells = grouped(rows, lambda row: (row["benchmark"], row["foreign"], row["inputs"]))
    for (benchmark, kind, inputs), of in cells.items():
        told = {row["score"]: row for row in of}
        both = (f"{told[s]['false_accept']:.0%} ({told[s]['auroc']:.2f})" for s in scores)
        accepted = f"{told['the default']['accepted']:.0%}"
        yield [benchmark, kind, str(inputs), *both, accepted]


def unnamed(path: Path) -> Rows:
    """Accuracy of basis tasks that nobody names: by α-optimisation, and by halving."""
    rows = [row for row in read_record(path).rows if row["method"].startswith("GN")]
    counts = sorted({row["masks"] for row in rows})
    yield ["sparsity", *(f"N = {count}: α-optimisation; halving" for count in counts)]
    cells = grouped(rows, lambda row: (row["sparsity"], row["masks"], row["method"]))
    for sparsity in dict.fromkeys(row["sparsity"] for row in rows):
        line = [str(sparsity)]
        for count in counts:
            pair = (cells[sparsity, count, name] for name in ("GN", "GN, halving"))
            told = (summarise(of, "accuracy") for of in pair)
            line.append("; ".join(f"{percent(e.mean)} ± {100 * e.half_width:.1f}" for e in told))
        yield line


def by_sparsity(path: Path) -> Rows:
    """Accuracy of unseen tasks by sparsity; the last N less SupSup, paired by task and network."""
    rows = read_record(path).rows
    *counts, most = sorted({row["masks"] for row in rows if row["method"] == "heterogeneous"})
    columns: dict[str, tuple[str, Any]] = {"SupSup": ("supsup", None)}
    columns |= {f"N = {count}": ("heterogeneous", count) for count in (*counts, most)}
    columns |= {f"homogeneous, N = {most}": ("homogeneous", most), "X": ("X", 1)}
    yield ["sparsity", *columns, f"N = {most} less SupSup"]
    cells = grouped(rows, lambda row: (row["sparsity"], row["method"], row.get("masks")))
    for sparsity in dict.fromkeys(row["sparsity"] for row in rows):
        told = [cells[(sparsity, *which)] for which in columns.values()]
        ours = {(row["seed"], row["task"]): row for row in cells[sparsity, "heterogeneous", most]}
        pairs = ((ours[row["seed"], row["task"]], row) for row in told[0])
        ahead = summarise(
            [{**one, "points": 100 * (one["accuracy"] - of["accuracy"])} for one, of in pairs],
            "points",
        )
        means = (summarise(of, "accuracy") for of in told)
        yield [
            str(sparsity),
            *(f"{percent(each.mean)} ± {100 * each.half_width:.1f}" for each in means),
            f"{signed(ahead.mean)} ± {ahead.half_width:.1f}",
        ]


def sites(path: Path) -> Rows:
    """How often the site is found that rows of a table come from, and how often that was said."""
    rows = json.loads(path.read_text("utf-8"))["rows"]
    counts = list(dict.fromkeys(row["inputs"] for row in rows))
    yield ["sites drawn from", "columns", *(f"from {count} rows" for count in counts)]
    cells = grouped(rows, lambda row: (row["table"], row["columns"], row["inputs"]))
    tables = dict.fromkeys((row["table"], row["columns"], row["chosen_on"]) for row in rows)
    for table, columns, chosen_on in tables:
        line = [table if chosen_on else f"{table} (held out)", str(columns)]
        for count in counts:
            of = cells[table, columns, count]
            found, stated = (
                sum(row[key] for row in of) / len(of)
                for key in ("task_accuracy", "stated_accuracy")
            )
            line.append(f"{found:.0%} ({stated:.0%})")
        yield line


TABLES: dict[str, tuple[str, Callable[[Path], Rows]]] = {
    "switching": ("perf/switching.json", switching),
    "bench": ("perf/bench.json", bench),
    "advice": ("perf/advice.json", advice),
    "budgets": ("paper/results/frontier.json", partial(budgets, kinds=MNIST)),
    "budgets-cifar": (
        "paper/results/frontier.json",
        partial(budgets, kinds={"split-cifar100": "CIFAR-100"}),
    ),
    "curves": ("paper/results/frontier.json", curves),
    "pretrained": ("paper/results/pretrained.json", methods),
    "sites": ("perf/tables.json", sites),
    "searches": ("paper/results/task-inference.json", searches),
    "foreign": ("paper/results/task-inference.json", foreign),
    "rotations-by-sparsity": ("paper/results/rotated-mnist-paper.json", by_sparsity),
    "permutations-by-sparsity": ("paper/results/permuted-mnist-paper.json", by_sparsity),
    "unnamed-permutations": ("paper/results/permuted-mnist-paper.json", unnamed),
    "unnamed-rotations": ("paper/results/rotated-mnist-paper.json", unnamed),
}
