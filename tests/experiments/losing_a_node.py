"""The target `tiny` on a Ray cluster of two nodes on this machine; one is killed midway."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ray
from odd_targets import target_of
from ray.cluster_utils import Cluster

from impresslearn.experiments.jobs import Place
from impresslearn.experiments.reproduce import Run, reproduce

STORE = 80 * 1024 * 1024
BEFORE = 8
"""Outcomes before the node is killed."""


def main(out: Path) -> None:
    cluster = Cluster()
    common = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    cluster.add_node(**common)
    second = cluster.add_node(**common)
    os.environ["RAY_ADDRESS"] = cluster.address
    kept = []

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
    main(Path(sys.argv[1]))
