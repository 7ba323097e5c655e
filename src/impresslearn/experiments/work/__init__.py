"""The kinds of jobs: what an experiment does once its settings are plain values.

`material` turns settings into streams, networks and banks; `masks` trains masks, `tasks` learns and
judges tasks on them, `inference` finds the task of unlabelled inputs, `whole_streams` learns many
tasks in one learner.
"""

from impresslearn.experiments.work import inference, masks, tasks, whole_streams

__all__ = ["inference", "masks", "tasks", "whole_streams"]
