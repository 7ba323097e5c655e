"""Experiments: streams x learners -> result records. One file each."""
