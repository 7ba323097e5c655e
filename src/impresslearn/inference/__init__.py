"""Task inference: finds the task of inputs without labels and without a task name."""

from impresslearn.inference.class_map import ClassMap as ClassMap
from impresslearn.inference.exhaustive import KnownTask as KnownTask
from impresslearn.inference.task_inference import InferenceMethod as InferenceMethod
from impresslearn.inference.task_inference import TaskGuess as TaskGuess
from impresslearn.inference.task_inference import guess_task as guess_task
from impresslearn.inference.task_inference import guess_tasks as guess_tasks
from impresslearn.inference.unknown import PROFILED_INPUTS as PROFILED_INPUTS
from impresslearn.inference.unknown import TaskProfile as TaskProfile
from impresslearn.inference.unknown import task_profile as task_profile
