"""The paper's figures and tables, rivals and speed: `python -m benchmarks --help`. Not installed.

`targets` says which jobs a figure needs, and `work` has the jobs. `reproduce` runs them through a
`cache` and `executors` and writes a `record`; `report` draws records. `rivals` are methods to
compare with; `bench` measures speed.
"""
