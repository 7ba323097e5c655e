"""Requests and answers as they are checked and documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

TaskName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
AmongWord = Literal["all", "basis", "learned"]
Method = Literal["halving", "one_shot"]
Label = int | str

NESTED: JsonDict = {
    "type": "array",
    "minItems": 1,
    "items": {"anyOf": [{"type": "number"}, {"type": "array"}]},
}
"""Nested lists; how deep and how long is the network's matter."""
PREPARED = "the inputs are prepared as the tasks were learned; raw otherwise."


class Strict(BaseModel):
    """A request: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class PredictQuery(Strict):
    """What goes with an .npy body; a JSON body carries these itself."""

    task: list[TaskName] = Field(
        default=[],
        description="With an .npy body: the task of all rows, or one task a row (a mixed batch).",
    )
    logits: bool = Field(default=False, description="With an .npy body: answer the logits too.")
    prepared: bool = Field(default=False, description=f"With an .npy body: {PREPARED}")


class InferQuery(Strict):
    """What goes with an .npy body; a JSON body carries these itself."""

    among: list[TaskName] = Field(
        default=[],
        description="With an .npy body: names to choose among, or one word: all, basis, learned.",
    )
    method: Method = Field(
        default="halving", description="With an .npy body: how candidates are ranked."
    )
    logits: bool = Field(default=False, description="With an .npy body: answer the logits too.")
    prepared: bool = Field(default=False, description=f"With an .npy body: {PREPARED}")


class PredictRequest(Strict):
    """Inputs of one task, or of several in one batch."""

    inputs: list[Any] = Field(
        description="One input a row, each as the network takes it.", json_schema_extra=NESTED
    )
    task: TaskName | Annotated[list[TaskName], Field(min_length=1)] = Field(
        description="The task of all rows, or the tasks of the rows, one a row (a mixed batch)."
    )
    logits: bool = Field(default=False, description="Answer the logits too.")
    prepared: bool = Field(default=False, description=PREPARED)

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"inputs": [[0.0, 0.5, 1.0], [1.0, 0.25, 0.0]], "task": "customer 7"},
                {"inputs": [[0.0, 0.5], [1.0, 0.25]], "task": ["site a", "site b"], "logits": True},
            ]
        },
    )


class InferRequest(Strict):
    """Inputs that all belong to one task, nobody says which."""

    inputs: list[Any] = Field(
        description="One input a row, each as the network takes it.", json_schema_extra=NESTED
    )
    among: AmongWord | Annotated[list[TaskName], Field(min_length=1)] = Field(
        default="all", description="The tasks to choose among: all, those of a role, or names."
    )
    method: Method = Field(default="halving", description="How candidates are ranked.")
    logits: bool = Field(default=False, description="Answer the logits too.")
    prepared: bool = Field(default=False, description=PREPARED)

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"inputs": [[0.0, 0.5, 1.0], [1.0, 0.25, 0.0]]},
                {"inputs": [[0.0, 0.5, 1.0]], "among": ["site a", "site b"], "method": "one_shot"},
            ]
        },
    )


class TaskQuery(Strict):
    """Which task."""

    name: TaskName = Field(description="A task's name.", examples=["customer 7"])


class PageQuery(Strict):
    """Which part of a list."""

    limit: int = Field(default=100, ge=1, le=1000, description="Tasks to answer at most.")
    offset: int = Field(default=0, ge=0, le=2**31, description="Tasks to pass over.")


class Predictions(BaseModel):
    """A label a row, as it was learned; logits a row, one a class, if they were asked for."""

    labels: list[Label]
    logits: list[list[float]] | None = None

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"labels": [3, 8], "logits": None}]},
    )


class TaskProbability(BaseModel):
    """How likely a task is to be the right one."""

    task: str
    probability: float = Field(ge=0, le=1)


class Inference(BaseModel):
    """The verdict on unlabelled inputs, and the predictions of the task that was found."""

    task: str | None = Field(description="The task, or null if the inputs look like none.")
    best: str = Field(description="The most likely candidate, even if unknown.")
    unknown: bool = Field(description="Whether 'none of these' is the most likely.")
    unknown_probability: float = Field(ge=0, le=1)
    entropy: float = Field(description="Of the posterior with unknown, in nats.")
    margin: float = Field(description="Probability of the best minus that of the next hypothesis.")
    posterior: list[TaskProbability] = Field(
        description="Candidates that were run, most likely first; the others have probability 0."
    )
    labels: list[Label] | None = Field(description="A label a row; null if unknown.")
    logits: list[list[float]] | None = None


class TaskSummary(BaseModel):
    """A task in a list."""

    name: str
    role: Literal["basis", "learned"]
    num_classes: int
    num_masks: int
    bytes: int = Field(description="All that this task alone needs.")


class TaskDetails(TaskSummary):
    """Everything about one task but its numbers."""

    classes: list[Label]
    breakdown: dict[str, int] = Field(description="Where its bytes are.")
    history: dict[str, Any] = Field(description="How it was learned.")


class TaskPage(BaseModel):
    """A part of the tasks, in the order they were learned."""

    total: int
    offset: int
    next: int | None = Field(description="The offset of the next page; null on the last one.")
    tasks: list[TaskSummary]


class Health(BaseModel):
    """What is served."""

    status: Literal["ok"] = "ok"
    version: str
    network: str
    input_shape: list[int | None] | None = Field(
        description="Of one input; null in it for a free size, null for an unknown shape."
    )
    preprocessing: dict[str, Any] | None = Field(
        description="What is done to raw inputs first: shape, mean, std, pixels; null for nothing."
    )
    tasks: int
    masks: int


class Problem(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="One line.", examples=["no task named 'custome 7' among 12"])
