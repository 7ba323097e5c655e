"""The figures that the first milestone is held to, measured on real data, one JSON file each.

    python paper/measure.py NAME --data DIR [--out paper/results] [--threads 1]

NAME: dedicated-mask, rotated, permuted-bank, random-unit, forgetting, norms,
task-inference, or all. DIR holds the
MNIST files as torchvision lays them out (MNIST/raw/*-ubyte), and for `norms` cifar100-subset.npz.
Every function's docstring says what it measures and what was expected; rows are single
measurements, `summary` their means.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import impresslearn as il
from impresslearn.baselines import single_mask_accuracy
from impresslearn.presets import preset
from impresslearn.sources import random_bank
from impresslearn.streams.draws import draw_angles
from impresslearn.training import Recipe

Result = tuple[list[dict[str, Any]], dict[str, Any]]


def backbone(name: str = "default", seed: int = 0) -> il.Backbone:
    """LeNet-300-100 with a preset's weights."""
    return il.create_backbone("lenet_300_100", 10, seed=seed, **preset(name).backbone_settings())


def default_learner(**overrides: Any) -> il.ImpressLearner:
    """A learner with the default preset, on the default backbone."""
    return il.ImpressLearner.from_preset(backbone(), "default", progress=False, **overrides)


def dedicated_mask(data: str) -> Result:
    """One mask a task (SupSup), sparsity 0.9, permuted MNIST, 2 and 5 epochs, three tasks."""
    rows = []
    for task in il.streams.permuted_mnist(tasks=3, seed=0, root=data, download=False):
        train, test = task.train, task.test
        for epochs in (2, 5):
            recipe = replace(preset("default").basis_recipe, epochs=epochs)
            learner = default_learner(basis_recipe=recipe).learn_basis(task.name, train)
            accuracy = learner.score(test, task.name)
            rows.append({"task": task.name, "epochs": epochs, "accuracy": accuracy})
    return rows, {
        f"accuracy_after_{epochs}_epochs": mean(
            r["accuracy"] for r in rows if r["epochs"] == epochs
        )
        for epochs in (2, 5)
    }


def rotated(data: str) -> Result:
    """Rotated MNIST, 10 basis tasks, 10 unseen angles, 30 coefficients; all labels and 50.

    Basis angles spread evenly (every 36 degrees), and drawn at random as the unseen ones are. Five
    epochs a mask, for SupSup's too.
    """
    rows = []
    for angles in ("spread", "random"):
        drawn = list(draw_angles(360, 0, None))
        basis = list(range(0, 360, 36)) if angles == "spread" else drawn[:10]
        unseen = [angle for angle in drawn[10:] if angle not in basis][:10]
        stream = il.streams.rotated_mnist(angles=basis + unseen, root=data, download=False)
        settings = preset("default").mask_settings()
        settings["basis_recipe"] = replace(settings["basis_recipe"], epochs=5)
        learner = default_learner(basis_recipe=settings["basis_recipe"])
        for task in stream[:10]:
            learner.learn_basis(task.name, task.train)
        supsup = il.SupSup(backbone(), **settings, progress=False)
        for task in stream[10:]:
            train, test = task.train, task.test
            for labels, chosen in (("all", train), ("50", train.subset(range(50)))):
                name = f"{task.name} {labels}"
                learner.learn_task(name, chosen)
                supsup.learn_task(name, chosen)
                rows.append(
                    {
                        "basis_angles": angles,
                        "task": task.name,
                        "labels": labels,
                        "accuracy": learner.score(test, name),
                        "supsup_accuracy": supsup.score(test, name),
                        "coefficients": learner.coefficients_[name].numel,
                        "bytes": learner.tasks_[name].bytes,
                    }
                )
    return rows, {
        f"{angles} basis angles, {labels} labels": {
            key: mean(r[key] for r in rows if (r["basis_angles"], r["labels"]) == (angles, labels))
            for key in ("accuracy", "supsup_accuracy")
        }
        for angles in ("spread", "random")
        for labels in ("all", "50")
    }


def permuted_bank(data: str) -> Result:
    """Permuted MNIST, N=100 trained masks at sparsity 0.8: five unseen tasks, and X.

    Both the paper's settings and the default ones, on their own backbones.
    """
    stream = il.streams.permuted_mnist(tasks=105, seed=0, root=data, download=False)
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for name in ("default", "paper_lenet"):
        learner = il.ImpressLearner.from_preset(backbone(name), name, sparsity=0.8, progress=False)
        for task in stream[:100]:
            learner.learn_basis(task.name, task.train)
        for task in stream[100:]:
            train, test = task.train, task.test
            for recipe in ("default", "paper_lenet"):
                learner.task_recipe = preset(recipe).task_recipe
                key = f"{task.name} {recipe}"
                learner.learn_task(key, train)
                rows.append(
                    {
                        "method": "layer",
                        "bank": name,
                        "optimiser": recipe,
                        "task": task.name,
                        "accuracy": learner.score(test, key),
                        "coefficients": learner.coefficients_[key].numel,
                    }
                )
            foreign = single_mask_accuracy(learner, stream[0].name, test)
            rows.append({"method": "X", "bank": name, "task": task.name, "accuracy": foreign})
    for row in rows:
        key = " ".join(str(row[k]) for k in ("method", "bank", "optimiser") if k in row)
        summary.setdefault(key, []).append(row["accuracy"])
    return rows, {key: mean(values) for key, values in summary.items()}


def task_inference(data: str) -> Result:
    """GN among 60 basis tasks of permuted MNIST, one trial a task, batches of 128, 8 and 1.

    And the α-optimisation of the paper among the first 10, on 2,000 unlabelled inputs a task and
    judged on all test inputs, with both objectives.
    """
    stream = il.streams.permuted_mnist(tasks=60, seed=0, root=data, download=False)
    learner = default_learner()
    rows: list[dict[str, Any]] = []
    for task in stream:
        learner.learn_basis(task.name, task.train)
    for task in stream[:10]:
        rows += _alpha_rows(learner, task, stream[:10].names)
    for task in stream:
        inputs = task.test.inputs
        for batch in (128, 8, 1):
            for method in ("halving", "one_shot"):
                guess = learner.infer_task(inputs[:batch], method=method)
                rows.append(
                    {
                        "method": f"{method}, batch {batch}",
                        "task": task.name,
                        "value": float(guess.best == task.name),
                        "unknown": guess.unknown,
                    }
                )
    methods = dict.fromkeys(row["method"] for row in rows)
    return rows, {
        method: mean(row["value"] for row in rows if row["method"] == method) for method in methods
    }


def _alpha_rows(
    learner: il.ImpressLearner, task: il.streams.Task, among: tuple[str, ...]
) -> list[dict[str, Any]]:
    test = task.test
    rows = [("known task, accuracy", learner.score(test, task.name))]
    for objective in ("information", "entropy"):
        guess = learner.infer_task(
            test.inputs[:2000], method="alpha", among=among, objective=objective
        )
        right = learner.predict_with(test.inputs, guess) == test.labels
        rows.append((f"alpha {objective}, found", float(guess.best == task.name)))
        rows.append((f"alpha {objective}, accuracy", float(right.mean())))
    return [{"method": name, "task": task.name, "value": value} for name, value in rows]


def random_unit(data: str) -> Result:
    """Permuted MNIST over random masks: `unit`, N=20, float32 and 4 bits; `layer`, N=240."""
    rows = []
    settings = (
        ("unit", 20, "float32"),
        ("unit", 20, "int4"),
        ("layer", 240, "float32"),
    )
    for task in il.streams.permuted_mnist(tasks=3, seed=0, root=data, download=False):
        train, test = task.train, task.test
        for granularity, masks, precision in settings:
            network = backbone()
            learner = il.ImpressLearner.from_preset(
                network,
                "default",
                bank=random_bank(network.layers, masks, seed=0),
                granularity=granularity,
                precision=precision,
                progress=False,
            ).learn_task(task.name, train)
            rows.append(
                {
                    "granularity": granularity,
                    "masks": masks,
                    "precision": precision,
                    "task": task.name,
                    "accuracy": learner.score(test, task.name),
                    "bytes": learner.tasks_[task.name].bytes,
                }
            )
    return rows, {
        f"{granularity} N={masks} {precision}": {
            key: mean(
                row[key]
                for row in rows
                if (row["granularity"], row["masks"], row["precision"])
                == (granularity, masks, precision)
            )
            for key in ("accuracy", "bytes")
        }
        for granularity, masks, precision in settings
    }


def forgetting(data: str) -> Result:
    """Logits of 10 tasks, compared bit for bit after 50 more (20 basis tasks, 30 learned)."""
    stream = il.streams.permuted_mnist(tasks=60, seed=1, root=data, download=False)
    learner = default_learner(cache_bytes=0)
    inputs = stream[0].test.inputs[:1000]

    def learn(index: int) -> None:
        task = stream[index]
        verb = learner.learn_basis if index % 5 < 2 or index < 5 else learner.learn_task
        verb(task.name, task.train.subset(range(2000)))

    for index in range(10):
        learn(index)
    early = list(learner.tasks_)
    before = {name: learner.logits(inputs, name) for name in early}
    for index in range(10, 60):
        learn(index)
    rows = [
        {"task": name, "identical": torch.equal(before[name], learner.logits(inputs, name))}
        for name in early
    ]
    return rows, {
        "tasks_compared": len(rows),
        "tasks_learned_since": len(learner.tasks_) - len(rows),
        "identical": sum(row["identical"] for row in rows),
    }


def norms(data: str) -> Result:
    """ResNet-18, width 16, CIFAR-100 subset, each norm policy: 3 basis tasks, 2 new ones."""
    stream = il.streams.split_cifar100(seed=0, root=data, subset=True)
    rows = []
    for norm in ("batch", "per_task", "shared", "group"):
        network = il.create_backbone(
            "resnet18", 5, seed=0, init="signed_constant", norm=norm, width=16
        )
        learner = il.ImpressLearner(
            network,
            sparsity=0.8,
            granularity="unit",
            basis_recipe=Recipe(lr=0.01, epochs=20, batch_size=64),
            task_recipe=Recipe(lr=0.02, epochs=20, batch_size=64),
            progress=False,
            cache_bytes=0,
        )
        inputs = stream[0].test.inputs[:64]
        before = {}
        for index, task in enumerate(stream[:5]):
            verb = learner.learn_basis if index < 3 else learner.learn_task
            verb(task.name, task.train)
            before[task.name] = learner.logits(inputs, task.name)
            rows.append(
                {
                    "norm": norm,
                    "task": task.name,
                    "role": learner.tasks_[task.name].role,
                    "accuracy": learner.score(task.test, task.name),
                    "bytes": learner.tasks_[task.name].bytes,
                }
            )
        for row in rows[-5:]:
            after = learner.logits(inputs, row["task"])
            row["identical"] = torch.equal(before[row["task"]], after)
    return rows, {
        norm: {
            "new_task_accuracy": mean(
                r["accuracy"] for r in rows if (r["norm"], r["role"]) == (norm, "learned")
            ),
            "identical": all(row["identical"] for row in rows if row["norm"] == norm),
        }
        for norm in ("batch", "per_task", "shared", "group")
    }


EXPERIMENTS: dict[str, Callable[[str], Result]] = {
    "dedicated-mask": dedicated_mask,
    "rotated": rotated,
    "random-unit": random_unit,
    "forgetting": forgetting,
    "norms": norms,
    "task-inference": task_inference,
    "permuted-bank": permuted_bank,
}


def main() -> None:
    """Runs the named experiments and writes their files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=[*EXPERIMENTS, "all"])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("paper/results"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in EXPERIMENTS if arguments.name == "all" else [arguments.name]:
        started = time.perf_counter()
        rows, summary = EXPERIMENTS[name](arguments.data)
        record = {
            "name": name,
            "what": EXPERIMENTS[name].__doc__,
            "command": f"python paper/measure.py {name} --data DIR",
            "summary": summary,
            "rows": rows,
            "seconds": round(time.perf_counter() - started, 1),
            "threads": arguments.threads,
            "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {"impresslearn": il.__version__, "torch": torch.__version__},
        }
        path = arguments.out / f"{name}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(name, json.dumps(summary, indent=1), flush=True)


if __name__ == "__main__":
    main()
