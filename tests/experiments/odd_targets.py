"""`impresslearn` with targets for the tests only: `python odd_targets.py reproduce tiny`.

tiny: real jobs, seconds in all; marks: jobs that note that they ran and wait a little; missing,
undefined, killed, fault: one job of theirs cannot be done.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from impresslearn.errors import MissingDataError
from impresslearn.experiments.jobs import Job, Outcome, Place, job_function
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


PLANS = {
    "tiny": lambda scale: plan_on("rotated-mnist", [BENCHMARK], scale),
    "marks": lambda _: marks(24, 0.1),
    **{
        method: lambda _, method=method: marks(8, 0.3, method)
        for method in ("missing", "killed", "undefined", "unreadable")
    },
}


def target_of(name: str) -> Target:
    """One of the targets above."""
    return Target(name, name, "", "", "", PLANS[name])


if __name__ == "__main__":
    from impresslearn import cli
    from impresslearn.experiments import targets

    targets.find_target = target_of
    cli.main()
