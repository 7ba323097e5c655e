"""A store: one SQLite database that holds a network, its masks and any number of tasks.

`store` is what a learner reads and commits to, in memory or in a file; `store_files` saves, opens
and compacts files. `rows` reads and writes the tables of a `database`. `tasks` and `network` define
the content of these tables.
"""
