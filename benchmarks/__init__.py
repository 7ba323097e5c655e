"""The paper's figures and tables, rivals and speed: `python -m benchmarks --help`. Not installed.

A target is a figure or table. `targets` lists the jobs that it needs, and `work` has the functions
of the jobs. `jobs` runs jobs and caches their results. `records` writes one file per target, which
`analysis` and `report` show. `rivals` has methods to compare with, `streams` has the data that they
learn, and `speed` measures time and memory.
"""
