"""Tables of pages that are made from committed records when the site is built.

```{record-table} switching
:folded: the title of the closed table
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.records import read_record
from benchmarks.targets.plan import read_tables
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from impresslearn.statistics import Summary, summarise
from impresslearn.tables import format_interval, percent, signed, size

ROOT = Path(__file__).parents[2]
MEANINGS = {
    "mix_step_ratio_10": "a coefficient step over 10 masks; a plain training step",
    "mix_step_ratio_100": "a coefficient step over 100 masks; a plain training step",
    "mix_vs_loop": "that step; a loop over masks of floats",
    "mix_vs_dense": "that step; one product with all masks as floats",
    "popup_step_ratio": "an edge-popup step; a plain training step",
    "popup_vs_sort": "an edge-popup step; edge-popup that sorts the scores",
    "warm_predict_ratio": "128 predictions for the task of the call before; the plain network",
    "inference_gradient_ratio": "a gradient over 100 superposed tasks; a training step",
    "coefficient_epoch": "60,000 images over 100 masks; the loop over masks of floats, with images "
    "transformed one by one",
    "popup_epoch": "60,000 images of edge-popup; the same with a sort, images one by one",
    "linear_in_masks": "what 180 more masks add to a step; nine times what 20 more add",
    "task_2000_vs_task_2": "learning a task after 2,000 others; learning one after none",
    "resnet18_step_ratio": "a coefficient step of ResNet-18, 10 masks; a plain training step",
}

NETWORKS = {
    "resnet20": "CIFAR-10 ResNet-20",
    "efficientnet": "EfficientNet-Lite0",
    "minilm": "all-MiniLM-L6-v2",
}
SINGLE = read_tables("shown.toml")["names"] | {"ImpressLearn": "`few_labels`"}
PROBE = {"method": "linear probe", "setting": "float32"}
MNIST = {"permuted-mnist": "permutations", "rotated-mnist": "rotations"}
CIFAR = {"split-cifar100": "CIFAR-100"}
Rows = Iterable[list[str]]
Row = Mapping[str, Any]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("record-table", RecordTable)
    return {"parallel_read_safe": True}


class RecordTable(SphinxDirective):
    """A table from a committed record; folded: the line that opens it."""

    required_arguments = 1
    option_spec: ClassVar = {"folded": str}

    def run(self) -> list[nodes.Node]:
        record, table = TABLES[self.arguments[0]]
        self.env.note_dependency(str(ROOT / record))
        head, *rows = table(ROOT / record)
        lines = [head, ["---"] * len(head), *([*map(_unbroken, row)] for row in rows)]
        parsed = self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))
        if "folded" not in self.options:
            return parsed
        opening = f"<details><summary>{self.options['folded']}</summary>"
        return [
            nodes.raw("", opening, format="html"),
            *parsed,
            nodes.raw("", "</details>", format="html"),
        ]


def _unbroken(cell: str) -> str:
    """A cell whose numbers stay with their units and intervals."""
    return re.sub(r"(?<=[\d%]) (?=±|[kMG]?B\b|s\b)|(?<=±) ", "\u00a0", cell)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The measurements of a record."""
    return read_record(path)["rows"]


def having(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def accuracy(rows: Sequence[Row]) -> str:
    """The mean with its interval, or with the draws in brackets where they are fewer than five."""
    if not rows:
        return "–"
    summary = mean_of(rows, "accuracy")
    if summary.half_width is not None:
        return format_interval("accuracy", summary.mean, summary.half_width)
    if len(set(summary.draws)) == 1:
        return percent(summary.mean)
    return f"{percent(summary.mean)} [{', '.join(map(percent, summary.draws))}]"


def mean_of(rows: Sequence[Row], key: str) -> Summary:
    """Mean and interval over seeds, or over tasks if the rows have a single seed."""
    seeds = {row.get("seed") for row in rows}
    unit = "seed" if None not in seeds and len(seeds) > 1 else "task"
    draws: dict[Any, list[float]] = {}
    for place, row in enumerate(rows):
        draws.setdefault(row.get(unit, place), []).append(float(row[key]))
    return summarise([fmean(values) for values in draws.values()])


def unseen(path: Path) -> Rows:
    """Accuracy on unseen tasks by the number of masks."""
    rows = read_rows(path)
    yield ["masks", "trained on different tasks", "trained on one task", "one mask per task"]
    counts = sorted({row["masks"] for row in having(rows, method="heterogeneous")})
    for count in counts:
        kinds = ("heterogeneous", "homogeneous")
        cells = [accuracy(having(rows, method=kind, masks=count)) for kind in kinds]
        yield [str(count), *cells, accuracy(having(rows, method="supsup"))]


def by_sparsity(path: Path) -> Rows:
    """Accuracy on unseen tasks by sparsity, with the paper's settings."""
    rows = read_rows(path)
    counts = sorted({row["masks"] for row in having(rows, method="heterogeneous")})
    yield ["sparsity", "one mask per task", *(f"{count} masks" for count in counts)]
    for sparsity in dict.fromkeys(row["sparsity"] for row in rows):
        own = having(rows, sparsity=sparsity, method="supsup")
        mixed = partial(having, rows, sparsity=sparsity, method="heterogeneous")
        cells = [accuracy(mixed(masks=count)) for count in counts]
        yield [str(sparsity), accuracy(own), *cells]


def budgets(path: Path, benchmarks: Mapping[str, str]) -> Rows:
    """The best of ours and the best other method at each budget of bytes, and how far apart."""
    names = benchmarks.values()
    columns = ("ours", "best other", "difference")
    yield ["budget", *(f"{name}: {column}" for name in names for column in columns)]
    rows = read_rows(path)
    cells: dict[float, list[str]] = {}
    for row in having(rows, role="budget"):
        if row["benchmark"] not in benchmarks or "ours" not in row:
            continue
        ours, other = row["ours"].partition(":")[0], row["other"].partition(":")[0]
        line = cells.setdefault(row["budget"], [])
        line.append(f"{percent(row['accuracy'])}, {ours.partition(', ')[2]}")
        line.append(f"{percent(row['other_accuracy'])}, {other}")
        line.append(f"{signed(row['difference'])} points")
    for budget, line in cells.items():
        yield [size(budget), *line]


def methods(path: Path, labels: int | None = None) -> Rows:
    """Every method and setting by its bytes per task."""
    rows = having(read_rows(path), role="evaluation")
    if labels is not None:
        rows = having(rows, labels=labels)
    yield ["method, setting", "accuracy", "bytes", "seconds"]
    settings = dict.fromkeys((row["method"], row["setting"]) for row in rows)
    lines = []
    for method, setting in settings:
        chosen = having(rows, method=method, setting=setting)
        bytes_per_task = mean_of(chosen, "bytes_per_task").mean
        seconds = mean_of(chosen, "seconds").mean
        line = [f"{method}, {setting}", accuracy(chosen), f"{bytes_per_task:,.0f}"]
        lines.append((bytes_per_task, [*line, f"{seconds:.3g}"]))
    yield from (line for _, line in sorted(lines))


def at_budgets(path: Path, benchmark: str) -> Rows:
    """Every method over one network, and how far it is from the float probe on the same tasks."""
    rows = having(read_rows(path), role="evaluation", benchmark=benchmark)
    probe = {row["task"]: row["accuracy"] for row in having(rows, **PROBE)}
    yield ["method", "accuracy", "against the probe", "bytes", "seconds"]
    keys = ("method", "setting", "budget")
    for place in dict.fromkeys(tuple(row.get(key) for key in keys) for row in rows):
        chosen = having(rows, **dict(zip(keys, place, strict=True)))
        method, setting, budget = place
        name = f"{method}, {setting}" + (f", `max_bytes={budget:.0f}`" if budget else "")
        apart = summarise([100 * (row["accuracy"] - probe[row["task"]]) for row in chosen])
        difference = f"{signed(apart.mean)} ± {apart.half_width:.1f}"
        if having(chosen, **PROBE):
            difference = ""
        sizes = f"{mean_of(chosen, 'bytes_per_task').mean:,.0f}"
        seconds = mean_of(chosen, "seconds").mean
        seconds = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"
        yield [name, accuracy(chosen), difference, sizes, seconds]


def few_labels(path: Path) -> Rows:
    """Accuracy by the number of labels per task."""
    rows = read_rows(path)
    methods_of = list(dict.fromkeys(row["method"] for row in rows))
    yield ["labels", *methods_of]
    for labels in dict.fromkeys(row["labels"] for row in rows):
        cells = [accuracy(having(rows, labels=labels, method=method)) for method in methods_of]
        yield [f"{labels:,}", *cells]


def single_inputs(path: Path) -> Rows:
    """Methods on tasks without their names, one input at a time."""
    yield ["network", "method", "Class-IL", "Task-IL", "bytes to predict", "bytes to learn on"]
    for row in read_rows(path):
        name = row["benchmark"].removeprefix("incremental-")
        network = NETWORKS[name.removesuffix("-blocks")] + ", all blocks" * name.endswith("-blocks")
        method = SINGLE[row["method"]] + (f", {row['setting']}" if "setting" in row else "")
        sizes = [size(row[key]) for key in ("bytes", "state_bytes")]
        yield [network, method, percent(row["class_il"]), percent(row["task_il"]), *sizes]


def searches(path: Path) -> Rows:
    """How often each way to infer the task finds it, and in how many seconds."""
    names = {"exhaustive": "every task run", "one_shot": "one-shot"}
    yield ["inputs of", "tasks", "inputs", *names.values()]
    rows = having(read_rows(path), kind="search")
    for benchmark, tasks, inputs in dict.fromkeys(
        (row["benchmark"], row["tasks"], row["inputs"]) for row in rows
    ):
        cells = []
        for search in names:
            found = having(rows, benchmark=benchmark, tasks=tasks, inputs=inputs, search=search)
            cells.append(f"{found[0]['found']:.0%} ({found[0]['seconds']:.3f} s)" if found else "–")
        yield [benchmark, f"{tasks:,}", str(inputs), *cells]


def switching(path: Path) -> Rows:
    """What switching between tasks costs."""
    record = json.loads(path.read_text(encoding="utf-8"))
    yield [
        "tasks", "bytes per task", "store", "opening it", "predicting, other task than before",
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


def bench(path: Path) -> Rows:
    """What `python -m benchmarks speed` measures."""
    record = json.loads(path.read_text(encoding="utf-8"))
    yield ["what; its reference", "measured", "reference", "ratio"]
    for row in record:
        yield [
            f"{MEANINGS[row['name']]} (`{row['name']}`)",
            f"{row['value']:,.4g} {row['unit']}",
            f"{row['reference']:,.4g} {row['unit']}",
            f"{row['ratio']:.2f} ({row['meaning']})",
        ]


RESULTS = "paper/results"
TABLES: dict[str, tuple[str, Callable[[Path], Rows]]] = {
    "switching": ("perf/switching.json", switching),
    "bench": ("perf/bench.json", bench),
    "rotations": (f"{RESULTS}/rotated-mnist.json", unseen),
    "permutations": (f"{RESULTS}/permuted-mnist.json", unseen),
    "rotations-by-sparsity": (f"{RESULTS}/rotated-mnist-paper.json", by_sparsity),
    "permutations-by-sparsity": (f"{RESULTS}/permuted-mnist-paper.json", by_sparsity),
    "budgets": (f"{RESULTS}/frontier.json", partial(budgets, benchmarks=MNIST)),
    "budgets-cifar": (f"{RESULTS}/frontier.json", partial(budgets, benchmarks=CIFAR)),
    "few-labels": (f"{RESULTS}/few-labels.json", few_labels),
    "customers-100": (f"{RESULTS}/customers.json", partial(methods, labels=100)),
    "customers-20": (f"{RESULTS}/customers.json", partial(methods, labels=20)),
    "pretrained": (f"{RESULTS}/pretrained.json", methods),
    "text": (f"{RESULTS}/clinc150.json", methods),
    **{
        name: (f"{RESULTS}/{record}.json", partial(at_budgets, benchmark=name))
        for record, names in {
            "image-network": ("image-network", "image-network-resnet20", "image-network-resnet32"),
            "sentences": ("sentences", "sentences-100", "sentence-customers"),
        }.items()
        for name in names
    },
    "searches": (f"{RESULTS}/task-inference.json", searches),
    "single-inputs": (f"{RESULTS}/class-incremental.json", single_inputs),
}
