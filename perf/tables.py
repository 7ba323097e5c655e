"""How often the site is found that rows of a table come from, when nobody names it.

    python perf/tables.py [--out perf/tables.json]

Sites are drawn from scikit-learn's tables: 60 to 150 rows of each are learned by a linear readout,
every column moved by 0.4 standard deviations and scaled by 15%, as sensors that are set
differently; the rows that are asked with are others. What columns count was chosen on `wine` and
`breast_cancer` (and on synthetic sensors), nothing on `diabetes` and `iris`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets

import impresslearn as il

TABLES = {"wine": 1, "breast_cancer": 1, "diabetes": 0, "iris": 0}
"""Names of scikit-learn's loaders, and whether anything was chosen on them."""
SITES, INPUTS, TRIALS = 40, (1, 5, 10, 50), 2


def sites(name: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is learned, and what is asked with, by site."""
    values, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    if len(np.unique(labels)) > 10:
        labels = (labels > np.median(labels)).astype(int)
    generator = np.random.default_rng(seed)
    mean, spread, columns = values.mean(0), values.std(0), values.shape[1]
    learned, asked = {}, {}
    for number in range(SITES):
        gain = np.exp(generator.normal(0, 0.15, columns))
        moved = mean + (values - mean) * gain + spread * generator.normal(0, 0.4, columns)
        order, half = generator.permutation(len(values)), len(values) // 2
        count = min(half, int(generator.integers(60, 151)))
        learned[f"site {number}"] = moved[order[:count]], labels[order[:count]]
        asked[f"site {number}"] = moved[order[half:]], labels[order[half:]]
    return learned, asked


def measure(name: str, seed: int) -> list[dict[str, Any]]:
    """A row for each number of inputs."""
    learned, asked = sites(name, seed)
    seen = np.concatenate([values for values, _ in list(learned.values())[:8]])
    backbone = il.create_backbone("linear", in_features=seen.shape[1], head="own")
    prepared = il.Preprocessing.standardising(seen)
    settings: dict[str, Any] = {"preprocessing": prepared, "progress": False}
    learner = il.ImpressLearner.from_preset(backbone, "few_labels", **settings)
    for site, data in learned.items():
        learner.learn_task(site, data)
    found = il.score_inference(learner, asked, inputs=INPUTS, trials=TRIALS)
    told = {"table": name, "chosen_on": bool(TABLES[name]), "columns": seen.shape[1], "seed": seed}
    return [{**told, "sites": SITES, **row} for row in found.rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("tables.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in TABLES for seed in (10, 11, 12) for row in measure(name, seed)]
    versions = {"impresslearn": il.__version__, "torch": torch.__version__}
    record = {"versions": versions, "rows": rows}
    given.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
