"""Pydantic models of requests and answers, as they are checked and documented.

A JSON body carries its options itself; an .npy body holds nothing but inputs, and its options stand
in the query.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from typing_extensions import Self

from impresslearn.errors import InputError
from impresslearn.serve.bodies import JSON, as_array, parse_json, parse_npy
from impresslearn.serve.errors import first_problem

TaskName = Annotated[str, Field(min_length=1, max_length=1024)]
TaskNames = Annotated[list[TaskName], Field(min_length=1)]
Among = Literal["all", "basis", "learned"]
Method = Literal["auto", "exhaustive", "one_shot", "shortlist", "halving"]
Label = int | str
Inputs = Annotated[
    np.ndarray,
    PlainValidator(as_array),
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [{"type": "number"}, {"type": "array"}]},
            "description": "One input a row, each as the network takes it.",
        }
    ),
]
"""Nested lists in JSON; how deep and how long is the network's matter."""


class Strict(BaseModel):
    """A request: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class TaskQuery(Strict):
    """Which task."""

    name: TaskName = Field(description="A task's name.", examples=["customer 7"])


class VersionQuery(TaskQuery):
    """Which version of a task."""

    version: int = Field(ge=1, le=2**31, description="One of its versions.", examples=[1])


class PageQuery(Strict):
    """Which part of a list."""

    limit: int = Field(default=100, ge=1, le=1000, description="Tasks to answer at most.")
    offset: int = Field(default=0, ge=0, le=2**31, description="Tasks to pass over.")


class Options(Strict):
    """Options of every prediction: in the query of an .npy body, or in the JSON body itself."""

    logits: bool = Field(default=False, description="Answer the logits too.")
    prepared: bool = Field(
        default=False,
        description="The inputs are prepared as the tasks were learned; raw otherwise.",
    )


class PredictQuery(Options):
    """Options of a prediction with an .npy body."""

    task: list[TaskName] = Field(
        default=[], description="The task of all rows, or one task a row (a mixed batch)."
    )

    def fields(self) -> dict[str, Any]:
        """What the query says, as a JSON body would."""
        if not self.task:
            raise InputError("an .npy body needs the task in the query: ?task=NAME, or one a row")
        return {**dict(self), "task": self.task[0] if len(self.task) == 1 else self.task}


class InferQuery(Options):
    """Options of an inference with an .npy body."""

    among: list[TaskName] = Field(
        default=["all"], description="Names to choose among, or one word: all, basis, learned."
    )
    method: Method = Field(default="auto", description="How the tasks are ranked.")
    top: int = Field(default=20, ge=1, description="Tasks in the posterior, the most likely ones.")

    def fields(self) -> dict[str, Any]:
        """What the query says, as a JSON body would."""
        is_word = len(self.among) == 1 and self.among[0] in get_args(Among)
        return {**dict(self), "among": self.among[0] if is_word else self.among}


class InputsRequest(Options):
    """Inputs and what to do with them."""

    inputs: Inputs

    @classmethod
    def read(cls, query: PredictQuery | InferQuery, kind: str, body: bytes) -> Self:
        """The request of a query and of the body, of this media type, that came with it.

        Options in the wrong place are refused, so that none is silently without effect.
        """
        if kind == JSON:
            for name in query.model_dump(exclude_defaults=True):
                raise InputError(f"{name} in the query belongs to .npy bodies; put it in the JSON")
            fields = parse_json(body)
        else:
            fields = {**query.fields(), "inputs": parse_npy(body)}
        try:
            return cls.model_validate(fields, strict=True)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            raise InputError(first_problem(problems)) from None


class PredictRequest(InputsRequest):
    """Inputs of one task, or of several in one batch."""

    task: TaskName | TaskNames = Field(
        description="The task of all rows, or the tasks of the rows, one a row (a mixed batch)."
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": [[0.0, 0.5, 1.0], [1.0, 0.25, 0.0]], "task": "customer 7"},
                {"inputs": [[0.0, 0.5], [1.0, 0.25]], "task": ["site a", "site b"], "logits": True},
            ]
        }
    )


class InferRequest(InputsRequest):
    """Inputs that all belong to one task, nobody says which."""

    among: Among | TaskNames = Field(
        default="all", description="The tasks to choose among: all, those of a role, or names."
    )
    method: Method = Field(default="auto", description="How the tasks are ranked.")
    top: int = Field(default=20, ge=1, description="Tasks in the posterior, the most likely ones.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": [[0.0, 0.5, 1.0], [1.0, 0.25, 0.0]]},
                {"inputs": [[0.0, 0.5, 1.0]], "among": ["site a", "site b"], "method": "one_shot"},
            ]
        }
    )


class Predictions(BaseModel):
    """A label a row, as it was learned; logits a row, one a class, if they were asked for."""

    labels: list[Label] = Field(examples=[[3, 8]])
    versions: dict[str, int] = Field(description="Task -> the version of it that answered.")
    logits: list[list[float]] | None = None


class TaskProbability(BaseModel):
    """How likely a task is to be the right one."""

    task: str
    probability: float = Field(ge=0, le=1)


class Inference(BaseModel):
    """The verdict on unlabelled inputs, and the predictions of the task that was found."""

    task: str | None = Field(description="The task, or null if the inputs look like none.")
    best: str = Field(description="The most likely task, even if unknown.")
    unknown: bool = Field(description="Whether 'none of these' is the most likely.")
    unknown_probability: float = Field(ge=0, le=1)
    entropy: float = Field(description="Of the posterior with unknown, in nats.")
    margin: float = Field(description="Probability of the best minus that of the next hypothesis.")
    posterior: list[TaskProbability] = Field(
        description="Tasks that were run, most likely first; the others have probability 0."
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
    version: int = Field(description="1, and one more with every update.")


class TaskDetails(TaskSummary):
    """Everything about one task but its numbers."""

    classes: list[Label]
    breakdown: dict[str, int] = Field(description="Where its bytes are.")
    history: dict[str, Any] = Field(description="How it was learned.")


class TaskVersions(BaseModel):
    """All versions of a task, the first one first; the last one is the present one."""

    versions: list[TaskDetails]


class Removed(BaseModel):
    """Which task is gone, with all its versions."""

    removed: str


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
