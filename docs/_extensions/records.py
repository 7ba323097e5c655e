"""Tables of pages that are made from committed records when the site is built.

```{record-table} switching
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PERF = Path(__file__).parents[2] / "perf"
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

Rows = Iterable[list[str]]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("record-table", RecordTable)
    return {"parallel_read_safe": True}


class RecordTable(SphinxDirective):
    """A table from a record of perf/."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        record = PERF / f"{name}.json"
        self.env.note_dependency(str(record))
        head, *rows = TABLES[name](json.loads(record.read_text(encoding="utf-8")))
        lines = [head, ["---"] * len(head), *rows]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def switching(record: dict[str, Any]) -> Rows:
    """perf/switching.json."""
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


def bench(record: list[dict[str, Any]]) -> Rows:
    """perf/bench.json."""
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


TABLES: dict[str, Callable[[Any], Rows]] = {"switching": switching, "bench": bench}
