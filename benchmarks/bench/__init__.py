"""Speed and memory, each figure beside its reference in the same run; see `cases`."""
