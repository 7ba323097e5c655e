"""Checks the task names that come with a batch."""

from collections.abc import Iterable
from typing import Any

from impresslearn.errors import InputError


def check_task_names(tasks: Any, count: int) -> list[str]:
    """The task names of a batch, one per input. Raises InputError unless there are `count`."""
    if isinstance(tasks, str):
        return [tasks] * count
    names = list(tasks) if isinstance(tasks, Iterable) else [tasks]
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"task must be a name, one name per input, or None, got {name!r}")
    if len(names) != count:
        line = f"{count} inputs came with {len(names)} task names; give one string for all of them"
        raise InputError(f"{line}, or a list of {count}")
    return names
