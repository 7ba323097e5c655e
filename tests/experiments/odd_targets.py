"""`impresslearn` with targets for the tests only: `python odd_targets.py reproduce tiny`.

tiny: real jobs, seconds in all; marks: jobs that note that they ran and wait a little; missing,
undefined, unreadable, killed: one job of theirs cannot be done. `python odd_targets.py lose OUT`
runs tiny on a Ray cluster of two nodes on this machine, one of which is killed midway.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from impresslearn.errors import MissingDataError
from impresslearn.experiments.jobs import Job, Outcome, Place, job_function
from impresslearn.experiments.reproduce import Run, reproduce
from impresslearn.experiments.targets.benchmarks import Benchmark
from impresslearn.experiments.targets.catalogue import plan_on
from impresslearn.experiments.targets.plan import Plan, Planned, Target

QUICK = {"lr": 0.03, "epochs": 0, "min_steps": 6, "batch_size": 32}
BENCHMARK = Benchmark(
    name="tiny",
    data="digits",
    stream={"name": "rotated_digits", "tasks": 5},
    backbone={
        "name": "lenet_300_100", "num_classes": 10, "in_features": 64, "widths": [24, 12],
        "init": "signed_constant", "gain": 2.0,
    },
    mask={"allocation": "uniform", "rule": "magnitude", "recipe": QUICK},
    task={"recipe": QUICK, "penalty": 0.0},
    basis=3,
    unseen=2,
    counts=(2, 3),
    repeats=(2, 3),
    sparsities=(0.8,),
    seeds=(0,),
    gn_inputs=32,
    gn_tasks=2,
)  # fmt: skip
BEFORE = 8
"""Outcomes before a node is killed."""


@job_function("mark")
def mark(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """Notes that it ran, and is done after a while."""
    with (Path(place.data) / "marks").open("a") as file:
        file.write(f"{settings['number']} {os.getpid()}\n")
    time.sleep(settings.get("wait", 0))
    total = settings["number"] + sum(need.values["total"] for need in needs)
    return Outcome({"task": str(settings["number"]), "total": total}, bytes([total % 256]) * 99)


@job_function("odd")
def odd(settings: Mapping[str, Any], needs: Sequence[Outcome], place: Place) -> Outcome:
    """What cannot be done, until there is a file `repaired` among the data."""
    if (Path(place.data) / "repaired").exists():
        return Outcome({"task": "odd", "total": -1})
    if settings["method"] == "missing":
        raise MissingDataError(f"MNIST is not in {place.data}; it is a folder MNIST/raw")
    if settings["method"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if settings["method"] == "unreadable":
        (Path(place.data) / "none" / "images").read_bytes()
    return Outcome({"task": "odd", "accuracy": float("nan"), "total": 0})


def marks(count: int, wait: float, method: str = "") -> Plan:
    """Jobs in twos: the second needs the first."""
    jobs = []
    for number in range(0, count, 2):
        first = Job(mark, {"number": number, "wait": wait})
        jobs += [first, Job(mark, {"number": number + 1, "wait": wait}, (first, first))]
    if method:
        jobs.insert(5, Job(odd, {"method": method}))
    planned = [Planned(job, {"method": "mark"}, ("task", "total")) for job in jobs]
    return Plan(planned, "none", {}, (0,))


def target_of(name: str) -> Target:
    """One of the targets above."""

    def plan(scale: str) -> Plan:
        if name == "tiny":
            return plan_on("rotated-mnist", [BENCHMARK], scale)
        return marks(24, 0.1) if name == "marks" else marks(8, 0.3, name)

    return Target(name, name, "", "", "", plan)


def lose_a_node(out: Path) -> None:
    """Writes how many jobs were told of, and how many nodes are left, beside the record."""
    import ray
    from ray.cluster_utils import Cluster

    cluster, kept = Cluster(), []
    common = {"num_cpus": 1, "object_store_memory": 80 * 1024**2, "include_dashboard": False}
    cluster.add_node(**common)
    second = cluster.add_node(**common)
    os.environ["RAY_ADDRESS"] = cluster.address

    def report(job: object, _: object) -> None:
        kept.append(job)
        if len(kept) == BEFORE:
            cluster.remove_node(second, allow_graceful=False)

    settings = Run("smoke", Place(), out, executor="ray")
    with settings.open_executor() as workers:
        reproduce(target_of("tiny"), settings, workers, report)
    (out / "reported").write_text(f"{len(kept)} jobs, {len(cluster.list_all_nodes())} node left")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "lose":
        lose_a_node(Path(sys.argv[2]))
    else:
        from impresslearn import cli
        from impresslearn.experiments import targets

        targets.find_target = target_of
        cli.main()
