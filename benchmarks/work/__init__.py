"""The functions of jobs: what an experiment does once its settings are plain values.

`inputs` turns settings into tasks, networks and banks; `training` trains masks and learns tasks and
streams; `hybrid` and `methods` learn a task by other methods, or by any; `evaluation` judges masks
and finds the task of unlabelled inputs. A job's key holds
the code that its module depends on (`benchmarks.code`), so modules are kept apart where one should
not make the other's outcomes worthless.
"""
