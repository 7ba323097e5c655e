"""The paper's figures and tables, and ours, as targets of `impresslearn reproduce`.

`benchmarks` says what streams, networks and recipes a scale uses; `plan` turns them into jobs and
rows; every other file is one figure or table.
"""

from impresslearn.experiments.targets.plan import Plan, Planned, Target, find_target, list_targets

__all__ = ["Plan", "Planned", "Target", "find_target", "list_targets"]
