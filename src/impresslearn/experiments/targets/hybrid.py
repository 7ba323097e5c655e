"""Hybrid ImpressLearn: SupSup's mask in the head, combined masks elsewhere (appendix)."""

from __future__ import annotations

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import split_cifar100
from impresslearn.experiments.targets.comparison import ACCURACY_FIGURE, ACCURACY_TABLE
from impresslearn.experiments.targets.plan import Plan, Planned, Target
from impresslearn.experiments.work.training import learn_hybrid


def plan(scale: str) -> Plan:
    """Both methods on the same unseen tasks and masks."""
    benchmark = split_cifar100(scale)
    planned = []
    for seed in benchmark.seeds:
        for sparsity in benchmark.sparsities:
            columns = {"seed": seed, "sparsity": sparsity}
            for count in benchmark.counts:
                banks = {"heterogeneous": benchmark.heterogeneous(seed, count, sparsity)}
                if count in benchmark.repeats:
                    banks["homogeneous"] = benchmark.homogeneous(seed, count, sparsity)
                for source, masks in banks.items():
                    more = {**columns, "masks": count, "source": source}
                    for task in benchmark.unseen_tasks():
                        own = benchmark.task_job(seed, task, masks)
                        head = {
                            "allocation": benchmark.mask["allocation"],
                            "sparsity": sparsity,
                            "recipe": benchmark.task["recipe"],
                            "seed": 0,
                        }
                        hybrid = Job(learn_hybrid, benchmark.place(seed, task) | head, masks)
                        planned.append(Planned(own, {"method": "ImpressLearn", **more}))
                        planned.append(Planned(hybrid, {"method": "hybrid", **more}))
    figures = [
        {
            **{key: value for key, value in ACCURACY_FIGURE.items() if key != "reference"},
            "title": f"Hybrid and ImpressLearn, {source} masks",
            "where": {"source": source},
        }
        for source in ("heterogeneous", "homogeneous")
    ]
    table = {**ACCURACY_TABLE, "columns": ["source", "method", "masks"]}
    settings = benchmark.described()
    return Plan(planned, benchmark.data, settings, benchmark.seeds, figures, [table])


TARGET = Target(
    name="hybrid",
    title="Hybrid ImpressLearn: a mask of its own for the head",
    claim="The hybrid is only marginally better, and only when masks are few; the difference "
    "vanishes as N grows.",
    expects="the hybrid ahead at small N",
    cost="about 8 minutes after split-cifar100",
    plan=plan,
)
