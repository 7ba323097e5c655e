"""The paper's figures and tables, rivals and speed: `python -m benchmarks --help`. Not installed.

`targets` says which jobs a figure needs, and `work` has their functions. `jobs` runs them and keeps
their results, `records` has the files that a target leaves, `analysis` and `report` show them.
`rivals` are methods to compare with, `streams` what they learn, `speed` measures time and memory.
"""
