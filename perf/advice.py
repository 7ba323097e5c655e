"""How good `advise` is beside a full search, and how much time it takes of it.

    python perf/advice.py digits customers pretrained [--data DIR] [--out perf/advice.json]

Both see the same development tasks and hold a fifth of each back. The full search tries every
candidate of the adviser at nine prices, a factor of three apart, on folds that hold a thousand
examples back, and takes the most accurate setting that fits the budget. What either recommends is
then learned on evaluation tasks, on which nothing was chosen, from all examples at the price raised
accordingly, none over the budget (`max_bytes`), and scored on their test sets. Seconds are of one
thread's processor time. What is done is kept in `OUT.TASKS.partial.json`: a measurement that was
broken off goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from itertools import product
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
from impresslearn.learner.search import Run, cases_of, share_learned  # noqa: E402
from impresslearn.networks.pretrained import load_resnet20  # noqa: E402

STEPS = range(-4, 5)
FACTOR = 3.0
ENOUGH = 1000
"""Examples that the full search holds back."""
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


def measure(source: Callable[[Path], Any], data: Path, kept: Kept) -> list[dict[str, Any]]:
    """A row for each budget."""
    backbone, tasks, evaluation, basis, budgets = source(data)
    labelled = {name: as_examples(each) for name, each in tasks.items()}
    factory = LearnerFactory(backbone, labelled, basis_of(labelled, basis), None, 0)

    def advised(budget: int) -> dict[str, Any]:
        started = time.process_time()
        advice = il.advise(tasks, budget, backbone=backbone, basis=basis, progress=False)
        print(f"{source.__name__}, {budget} B\n{advice}", flush=True)
        spent = time.process_time() - started
        return {**advice.best.row(), "price": advice.price, "seconds": spent}

    advice = {budget: kept.get(f"advice, {budget} B", advised, budget) for budget in budgets}
    runs, seconds = full_search(factory, kept)
    rows = []
    for budget, ours in advice.items():
        best = max((run for run in runs if run["bytes"] <= budget), key=lambda run: run["accuracy"])
        scores, others = (
            kept.get(f"{which}, {budget} B, evaluated", evaluated, factory, run, evaluation, budget)
            for which, run in (("advice", ours), ("search", best))
        )
        test = paired_test([100 * a for a, _ in scores], [100 * a for a, _ in others])
        rows.append(
            {
                "tasks": source.__name__,
                "budget": budget,
                "advised": f"{ours['candidate']}, price {ours['price']:.3g}",
                "full_search": f"{best['candidate']}, price {best['price']:.3g}",
                "n": len(evaluation),
                "accuracy": fmean(a for a, _ in scores),
                "full_accuracy": fmean(a for a, _ in others),
                "difference": test.difference,
                "half_width": test.half_width,
                "bytes_per_task": fmean(size for _, size in scores),
                "full_bytes": fmean(size for _, size in others),
                "seconds": round(ours["seconds"], 1),
                "full_seconds": round(seconds, 1),
            }
        )
        print(json.dumps(rows[-1], indent=1), flush=True)
    return rows


class Kept:
    """What is done already, in a file, so that a broken-off measurement goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def get(self, key: str, make: Callable[..., Any], *arguments: Any) -> Any:
        """What is kept under a key; it is made, and kept, if nothing is."""
        if key not in self.found:
            self.found[key] = make(*arguments)
            self.path.write_text(json.dumps(self.found, indent=1) + "\n", "utf-8")
        return self.found[key]


def full_search(factory: LearnerFactory, kept: Kept) -> tuple[list[dict[str, Any]], float]:
    """Every candidate at every price on every case, and how many seconds that takes."""
    pilots = {name: each for name, each in factory.tasks.items() if name not in factory.basis}
    cases = cases_of(pilots, 0, ENOUGH)
    candidates = [each for each in CANDIDATES if each.suits(factory.backbone, bool(factory.basis))]

    def make_banks() -> float:
        started = time.process_time()
        for candidate in candidates:
            factory.learner(candidate, candidate.price)
        return time.process_time() - started

    def tried(candidate: Candidate, price: float) -> dict[str, Any]:
        run = Run(candidate, price, factory.learner(candidate, price))
        started = time.process_time()
        run.try_on(cases)
        spent = time.process_time() - started
        print(f"{candidate.name} {price:.3g} {run.bytes:.0f} {run.accuracy:.4f}", flush=True)
        whole = price / share_learned(cases)
        return {**run.trial().row(), "price": whole, "seconds": spent}

    seconds, runs = kept.get("banks", make_banks), []
    for candidate, step in product(candidates, STEPS):
        price = candidate.price * len(cases[0].train.labels) / 1000 * FACTOR**step
        runs.append(kept.get(f"{candidate.name}, {price:.3g}", tried, candidate, price))
    return runs, seconds + sum(run["seconds"] for run in runs)


def evaluated(
    factory: LearnerFactory, run: Mapping[str, Any], tasks: Tasks, budget: int
) -> list[tuple[float, int]]:
    """Test accuracy and bytes of each task; none takes more than the budget."""
    candidate = next(each for each in CANDIDATES if each.name == run["candidate"])
    learner = factory.learner(candidate, run["price"], most=budget)
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
        done = Kept(given.out.with_suffix(f".{name}.partial.json"))
        kept = [row for row in kept if row["tasks"] != name]
        kept += measure(sources[name], given.data, done)
        record = {
            "threads": 1,
            "machine": "processor time of one thread, 2 CPU cores, other work beside it",
            "versions": {"impresslearn": il.__version__, "torch": torch.__version__},
            "rows": sorted(
                kept, key=lambda row: (list(sources).index(row["tasks"]), row["budget"])
            ),
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        done.path.unlink()


if __name__ == "__main__":
    main()
