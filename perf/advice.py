"""How good `advise` is beside a full search, and how much time it takes of it.

    python perf/advice.py digits customers pretrained [--data DIR] [--out perf/advice.json]

Both see the same development tasks and hold the same examples back. The full search tries every
candidate of the adviser at nine prices, a factor of three apart, on every case, and takes the most
accurate setting that fits the budget. What either recommends is then learned on evaluation tasks,
on which nothing was chosen, and scored on their test sets. One thread; seconds are of one process,
so their ratio counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

THREADS = "1"
os.environ |= {"OMP_NUM_THREADS": THREADS, "NUMBA_NUM_THREADS": THREADS}

import torch  # noqa: E402

import impresslearn as il  # noqa: E402
from impresslearn.data import as_examples  # noqa: E402
from impresslearn.experiments.statistics import paired_test  # noqa: E402
from impresslearn.learner.advice import basis_of  # noqa: E402
from impresslearn.learner.candidates import CANDIDATES, Candidate, LearnerFactory  # noqa: E402
from impresslearn.learner.search import Run, cases_of  # noqa: E402
from impresslearn.networks.pretrained import load_resnet20  # noqa: E402

STEPS = range(-4, 5)
FACTOR = 3.0
Tasks = Mapping[str, Any]


def digits(data: Path) -> tuple[Any, Tasks, Tasks, int, list[int]]:
    """Ten rotations of 8x8 digits to choose on, twelve to evaluate on."""
    stream = il.streams.rotated_digits(tasks=22, seed=5)
    return None, _train(stream[:10]), {t.name: t for t in stream[10:]}, 3, [200, 1000]


def customers(data: Path) -> tuple[Any, Tasks, Tasks, int, list[int]]:
    """Customers with 100 images each; masks of three with 2,000."""
    stream = il.streams.mnist_customers(tasks=48, seed=7, root=data, download=False, basis=3)
    return None, _train(stream[:13]), {t.name: t for t in stream[13:]}, 3, [300, 1000]


def pretrained(data: Path) -> tuple[Any, Tasks, Tasks, int, list[int]]:
    """A ResNet-20 trained on CIFAR-10, and tasks of five classes of CIFAR-100."""
    module = load_resnet20(data / "resnet20-cifar10.npz")
    backbone = il.adapt(module, norm="shared", head="own", input_shape=(3, 32, 32))
    normal = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    stream = il.streams.split_cifar100(
        root=data, subset=True, tasks=9, classes=range(55, 100), download=False, **normal
    )
    return backbone, _train(stream[:3]), {t.name: t for t in stream[3:]}, 0, [1000, 3000]


def _train(stream: Any) -> Tasks:
    return {task.name: task.train for task in stream}


def measure(source: Callable[[Path], Any], data: Path) -> list[dict[str, Any]]:
    """A row for each budget."""
    backbone, tasks, evaluation, basis, budgets = source(data)
    found, rows = {}, []
    for budget in budgets:
        started = time.perf_counter()
        advice = il.advise(tasks, budget, backbone=backbone, basis=basis, progress=False)
        found[budget] = advice, time.perf_counter() - started
        print(f"{source.__name__}, {budget} B, {found[budget][1]:.0f} s\n{advice}", flush=True)
    runs, seconds = full_search(backbone, tasks, basis)
    for budget, (advice, spent) in found.items():
        fitting = [run for run in runs if run.bytes <= budget]
        best = max(fitting, key=lambda run: run.accuracy)
        ours = evaluated(advice.factory, advice.best.candidate, advice.best.price, evaluation)
        other = evaluated(advice.factory, best.candidate, best.price, evaluation)
        test = paired_test([100 * a for a, _ in ours], [100 * a for a, _ in other])
        rows.append(
            {
                "tasks": source.__name__,
                "budget": budget,
                "advised": f"{advice.best.candidate.name}, price {advice.best.price:.3g}",
                "full_search": f"{best.candidate.name}, price {best.price:.3g}",
                "n": len(evaluation),
                "accuracy": fmean(a for a, _ in ours),
                "full_accuracy": fmean(a for a, _ in other),
                "difference": test.difference,
                "half_width": test.half_width,
                "bytes_per_task": fmean(size for _, size in ours),
                "full_bytes": fmean(size for _, size in other),
                "seconds": round(spent, 1),
                "full_seconds": round(seconds, 1),
            }
        )
        print(json.dumps(rows[-1], indent=1), flush=True)
    return rows


def full_search(backbone: Any, tasks: Tasks, basis: int) -> tuple[list[Run], float]:
    """Every candidate at every price on every case, and what that took."""
    started = time.perf_counter()
    data = {name: as_examples(each) for name, each in tasks.items()}
    chosen = basis_of(data, basis)
    factory = LearnerFactory(backbone, data, chosen, None, 0)
    cases = cases_of({name: each for name, each in data.items() if name not in chosen}, 0)
    runs = []
    for candidate in CANDIDATES:
        if not candidate.suits(backbone, bool(chosen)):
            continue
        middle = candidate.price * len(cases[0].train.labels) / 1000
        for step in STEPS:
            price = middle * FACTOR**step
            run = Run(candidate, price, factory.learner(candidate, price))
            run.try_on(cases)
            runs.append(run)
            print(f"{candidate.name} {price:.3g} {run.bytes:.0f} {run.accuracy:.4f}", flush=True)
    return runs, time.perf_counter() - started


def evaluated(
    factory: LearnerFactory, candidate: Candidate, price: float, tasks: Tasks
) -> list[tuple[float, int]]:
    """Test accuracy and bytes of each task."""
    learner = factory.learner(candidate, price)
    for number, (name, task) in enumerate(tasks.items()):
        learner.learn_task(name, task.train, seed=100 + number)
    return [(learner.score(t.test, name), learner.tasks_[name].bytes) for name, t in tasks.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    sources = {each.__name__: each for each in (digits, customers, pretrained)}
    parser.add_argument("tasks", nargs="+", choices=list(sources))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("advice.json"))
    given = parser.parse_args()
    torch.set_num_threads(int(THREADS))
    kept = json.loads(given.out.read_text("utf-8"))["rows"] if given.out.exists() else []
    for name in given.tasks:
        kept = [row for row in kept if row["tasks"] != name] + measure(sources[name], given.data)
        order = {source: place for place, source in enumerate(sources)}
        kept.sort(key=lambda row: (order[row["tasks"]], row["budget"]))
        record = {
            "threads": 1,
            "machine": "2 CPU cores, shared with other work while this was measured",
            "versions": {"impresslearn": il.__version__, "torch": torch.__version__},
            "rows": sorted(
                kept, key=lambda row: (list(sources).index(row["tasks"]), row["budget"])
            ),
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
