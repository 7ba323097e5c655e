"""`KnownTask`: a task that inputs may belong to, read and unpacked only when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from impresslearn.coefficients.mixing import Coefficients
from impresslearn.inference.profiles import TaskProfile
from impresslearn.networks.prediction import TaskView


@dataclass(frozen=True)
class KnownTask:
    """A task that the inputs may belong to.

    load: gives its coefficients, unpacked; view: makes it ready to compute; is_mixture: whether it
    combines masks, and is not one mask alone, numbers on single weights or a readout.
    """

    name: str
    num_classes: int
    load: Callable[[], Coefficients]
    view: Callable[[], TaskView]
    profile: TaskProfile | None
    is_mixture: bool = True
