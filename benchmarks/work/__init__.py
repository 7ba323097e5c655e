"""The functions of jobs: each makes an outcome of settings, needed outcomes and a `JobContext`."""
