"""Table 1 recomputed: parameters, masks and costs a task, with the paper's figures beside them."""

from __future__ import annotations

from math import isinf
from typing import Any

from benchmarks.targets.plan import Plan, Row, Table, read_tables
from impresslearn.networks import create_backbone


def plan(scale: str) -> Plan:
    """No jobs: everything follows from the networks."""
    lines = read_tables("parameters.toml")["line"]
    rows = [_row(line) for line in lines]
    table = {
        "title": "Table 1, recomputed (cost*: masks shared by all tasks, and a task's numbers)",
        "header": ["", *(line["dataset"] for line in lines)],
        "rows_verbatim": _cells(lines, rows),
    }
    settings = {"bytes_per_number": 4, "bits_per_weight_of_a_mask": 1}
    return Plan((), "no data", settings, tables=[table], derive=lambda _: rows)


def _row(line: Table) -> Row:
    backbone = create_backbone(line["backbone"], line["classes"], **line.get("settings", {}))
    layers = backbone.layers if line.get("head", True) else backbone.layers[:-1]
    weights = sum(layer.numel for layer in backbone.layers)
    mask, numbers = weights / 8 / 1000, line["masks"] * len(layers)
    shared = line["masks"] * mask / line["tasks"]
    as_paper = line["masks"] * line["mask"] / line["tasks"]
    learned = 4 * numbers / 1000
    return {
        "method": "ImpressLearn",
        "dataset": line["dataset"],
        "weights": weights,
        "mask_kb": round(mask, 1),
        "numbers": numbers,
        "bytes_per_task": 4 * numbers,
        "cost_kb": round(shared + learned, 2),
        "cost_kb_with_the_papers_mask": round(as_paper + learned, 2),
        "paper_cost_kb": line["cost"],
        "ratio": round(mask / (shared + learned), 1),
        "paper_ratio": line["ratio"],
    }


def _cells(lines: list[Table], rows: list[Row]) -> list[list[str]]:
    """A line a quantity, ours above the paper's."""
    paper = "in the paper"
    quantities: list[tuple[str, list[Any]]] = [
        ("tasks", ["784!" if isinf(line["tasks"]) else line["tasks"] for line in lines]),
        ("model", [line["backbone"] for line in lines]),
        ("weights", [row["weights"] for row in rows]),
        (paper, [line["parameters"] for line in lines]),
        ("mask, kB at a bit a weight", [row["mask_kb"] for row in rows]),
        (paper, [line["mask"] for line in lines]),
        ("masks N", [line["masks"] for line in lines]),
        ("numbers a task", [row["numbers"] for row in rows]),
        (paper, [line["alpha"] for line in lines]),
        ("cost*, kB", [row["cost_kb"] for row in rows]),
        ("of the paper's mask", [row["cost_kb_with_the_papers_mask"] for row in rows]),
        (paper, [line["cost"] for line in lines]),
        ("SupSup's mask / cost*", [row["ratio"] for row in rows]),
        (paper, [line["ratio"] for line in lines]),
    ]
    return [
        [name, *(cell if isinstance(cell, str) else f"{cell:,}" for cell in values)]
        for name, values in quantities
    ]
