"""The paper's figures and tables, rivals and speed: `python -m benchmarks --help`. Not installed.

A target is a figure or table. `targets` lists its jobs, and `work` has their functions. `jobs` runs
jobs and caches their results. `records` writes one file per target, which `analysis` and `report`
show. `rivals` has other methods, `streams` has data, and `speed` measures time and memory.
"""
