"""Which task is this? Task inference without labels and without a task name."""

from impresslearn.inference.task_inference import (
    METHODS,
    OBJECTIVES,
    PROFILED_INPUTS,
    EntropyProfile,
    InferenceMethod,
    InferenceSettings,
    KnownTask,
    TaskGuess,
    entropy_profile,
    guess_task,
)

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "PROFILED_INPUTS",
    "EntropyProfile",
    "InferenceMethod",
    "InferenceSettings",
    "KnownTask",
    "TaskGuess",
    "entropy_profile",
    "guess_task",
]
