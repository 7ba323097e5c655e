"""How much do masks overlap: of one task, of several, and if they were independent draws?"""

from __future__ import annotations

from impresslearn.experiments.jobs import Job
from impresslearn.experiments.targets.benchmarks import permuted_mnist
from impresslearn.experiments.targets.plan import Plan, Planned, Row, Target
from impresslearn.experiments.work.evaluation import compare_masks

MASKS = 10
VALUES = ("measured", "expected", "by_layer", "expected_by_layer")


def plan(scale: str) -> Plan:
    """Mean pairwise Jaccard overlap of ten homogeneous and ten heterogeneous masks."""
    benchmark = permuted_mnist(scale)
    planned = []
    for seed in benchmark.seeds:
        for sparsity in benchmark.sparsities:
            banks = {
                "homogeneous": benchmark.homogeneous(seed, MASKS, sparsity),
                "heterogeneous": benchmark.heterogeneous(seed, MASKS, sparsity),
            }
            for method, masks in banks.items():
                job = Job(compare_masks, {"backbone": benchmark.network(seed)}, masks)
                columns = {"method": method, "seed": seed, "sparsity": sparsity, "masks": MASKS}
                planned.append(Planned(job, columns, VALUES))
    figure = {
        "kind": "bar",
        "title": "Pairwise overlap of masks, by layer",
        "x": "layer",
        "y": "overlap",
        "group": "group",
        "x_label": "layer",
        "y_label": "Jaccard overlap",
    }
    table = {
        "title": "Mean pairwise Jaccard overlap",
        "columns": ["group", "layer"],
        "values": ["overlap"],
    }
    settings = benchmark.described()
    return Plan(planned, benchmark.data, settings, benchmark.seeds, [figure], [table], by_layer)


def by_layer(rows: list[Row]) -> list[Row]:
    """One row a layer, measured and expected, and one for all layers together."""
    found = []
    for row in rows:
        kept = {key: value for key, value in row.items() if key not in VALUES}
        for kind, whole, parts in (
            ("", row["measured"], row["by_layer"]),
            (", if independent", row["expected"], row["expected_by_layer"]),
        ):
            group = {"group": f"{row['method']}{kind}"}
            found.append({**kept, **group, "layer": "all", "overlap": whole})
            found += [
                {**kept, **group, "layer": str(number), "overlap": part}
                for number, part in enumerate(parts, 1)
            ]
    return found


TARGET = Target(
    name="overlap",
    title="Overlap of masks",
    claim="The overlap of homogeneous masks from different seeds is close to random: they are "
    "practically independent.",
    expects="heterogeneous masks overlap as independent draws do; homogeneous ones somewhat more",
    cost="a minute after permuted-mnist",
    plan=plan,
)
