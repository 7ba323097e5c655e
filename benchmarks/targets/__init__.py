"""The paper's figures and tables, and ours, as targets of `python -m benchmarks reproduce`.

`targets.toml` says what each is about and how it is shown, `benchmarks.toml` what streams, networks
and recipes a scale uses. `masks`, `tasks`, `frontier`, `small_tasks` and `parameters` hold the jobs
of each.
"""

from benchmarks.targets.catalogue import find_target, list_targets
from benchmarks.targets.plan import Plan, Planned, Target

__all__ = ["Plan", "Planned", "Target", "find_target", "list_targets"]
