"""Does the order of tasks matter? The same network, two orders, t-tests on unseen tasks (appendix).

The test is Welch's, on the accuracies of the unseen tasks under either order.
"""

from __future__ import annotations

from collections.abc import Iterator

from scipy.stats import ttest_ind

from impresslearn.experiments.targets.benchmarks import (
    Benchmark,
    described,
    permuted_mnist,
    rotated_mnist,
    split_cifar100,
)
from impresslearn.experiments.targets.plan import Plan, Planned, Row, Target

ORDERS = (0, 1)
MOST_MASKS = {"permuted-mnist": 30, "rotated-mnist": 20, "split-cifar100": 5}
"""At scale small: a second order needs masks of its own, one on images takes a minute."""


def plan(scale: str) -> Plan:
    """Unseen tasks under two orders of the stream, on the network of seed 0."""
    benchmarks = [make(scale) for make in (permuted_mnist, rotated_mnist, split_cifar100)]
    planned = [each for benchmark in benchmarks for each in _planned(benchmark, scale)]
    figures = [
        {
            "kind": "heatmap",
            "title": f"{benchmark.name}: p-values, and the difference in points of accuracy",
            "x": "masks",
            "y": "sparsity",
            "value": "p_value",
            "text": "difference",
            "where": {"method": "t-test", "benchmark": benchmark.name},
            "x_label": "basis masks N",
            "y_label": "sparsity",
        }
        for benchmark in benchmarks
    ]
    table = {
        "title": "Mean accuracy under either order",
        "columns": ["benchmark", "masks", "order"],
        "values": ["accuracy"],
    }
    settings, data = described(benchmarks)
    return Plan(planned, data, settings, ORDERS, figures, [table], with_tests)


def with_tests(rows: list[Row]) -> list[Row]:
    """The rows and, for each benchmark, N and sparsity, a row with p-value and difference.

    difference: mean accuracy of the second order minus that of the first, in points.
    """
    groups: dict[tuple, dict[int, list[float]]] = {}
    for row in rows:
        place = (row["benchmark"], row["masks"], row["sparsity"])
        groups.setdefault(place, {}).setdefault(row["order"], []).append(row["accuracy"])
    tests = []
    for (benchmark, masks, sparsity), by_order in groups.items():
        first, second = (by_order[order] for order in ORDERS)
        found = ttest_ind(first, second, equal_var=False)
        difference = 100 * (sum(second) / len(second) - sum(first) / len(first))
        tests.append(
            {
                "method": "t-test",
                "benchmark": benchmark,
                "masks": masks,
                "sparsity": sparsity,
                "p_value": float(found.pvalue),
                "difference": round(difference, 2),
            }
        )
    return rows + tests


def _planned(benchmark: Benchmark, scale: str) -> Iterator[Planned]:
    seed = benchmark.seeds[0]
    most = MOST_MASKS[benchmark.name] if scale == "small" else max(benchmark.counts)
    for sparsity in benchmark.sparsities:
        for count in (count for count in benchmark.counts if count <= most):
            for order in ORDERS:
                masks = benchmark.heterogeneous(seed, count, sparsity, order)
                columns = {
                    "method": "heterogeneous",
                    "benchmark": benchmark.name,
                    "seed": seed,
                    "order": order,
                    "sparsity": sparsity,
                    "masks": count,
                }
                for task in benchmark.unseen_tasks():
                    yield Planned(benchmark.task_job(seed, task, masks, order), columns)


TARGET = Target(
    name="task-order",
    title="Task order",
    claim="Accuracy can depend on the order of tasks when masks are few and sparse, most with "
    "rotated MNIST, not significantly with Split-CIFAR-100.",
    expects="unseen tasks differ between the orders too, so differences mix both causes, as in the "
    "paper",
    cost="about 10 minutes after the other benchmarks",
    plan=plan,
)
