"""The functions of jobs: what an experiment does once its settings are plain values.

`inputs` turns settings into tasks, networks and banks; `training` trains masks and learns tasks and
streams; `methods` learns a task by any method; `evaluation` judges masks and finds the task of
unlabelled inputs.
"""
