"""Figures in documents, held against the records that they come from.

`sources` says where the figures of a document come from (a TOML file), `lookups` finds a figure in
the records, `check` compares. `python -m impresslearn.experiments.figures docs/figures` checks all.
"""
