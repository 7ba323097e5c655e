"""Speed and memory, each figure beside its reference in the same run. See `runner.run_bench`."""

from impresslearn.experiments.bench.runner import CASES, run_bench

__all__ = ["CASES", "run_bench"]
