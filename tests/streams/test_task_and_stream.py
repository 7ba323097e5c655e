import pickle

import numpy as np
import pytest
import torch

from impresslearn.data import Examples
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.streams import Stream, Task


class CountingLoader:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Examples:
        self.calls += 1
        return Examples(torch.zeros(3, 2), np.arange(3))


def make_task(name: str) -> Task:
    return Task(name, (0, 1, 2), CountingLoader(), CountingLoader())


@pytest.fixture
def stream() -> Stream:
    return Stream("toy", tuple(make_task(f"task-{i}") for i in range(5)))


def test_task_makes_its_data_at_each_access_and_not_before() -> None:
    load = CountingLoader()
    task = Task("a", (0, 1, 2), load, CountingLoader())
    assert load.calls == 0
    assert len(task.train) == len(task.train) == 3
    assert load.calls == 2


def test_validation_is_none_without_a_split() -> None:
    assert make_task("a").validation is None
    with_split = Task("a", (0,), CountingLoader(), CountingLoader(), CountingLoader())
    assert with_split.validation is not None
    assert len(with_split.validation) == 3


def test_tasks_and_streams_cannot_be_changed(stream: Stream) -> None:
    with pytest.raises(AttributeError):
        stream[0].name = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        stream.tasks = ()  # type: ignore[misc]


def test_stream_is_a_sequence(stream: Stream) -> None:
    assert len(stream) == 5
    assert stream.names == tuple(f"task-{i}" for i in range(5))
    assert [task.name for task in stream] == list(stream.names)
    assert stream[-1] is stream["task-4"] is stream[np.int64(4)]
    assert stream[1] in stream
    assert "task-1" in stream
    assert "task-9" not in stream
    assert stream.index(stream[3]) == 3


def test_slice_is_a_stream_of_the_same_name(stream: Stream) -> None:
    part = stream[1:4:2]
    assert isinstance(part, Stream)
    assert part.name == "toy"
    assert part.names == ("task-1", "task-3")
    assert len(stream[5:]) == 0


def test_index_beyond_the_end_says_how_many_there_are(stream: Stream) -> None:
    with pytest.raises(IndexError, match="has 5 tasks; there is no task 5"):
        stream[5]


def test_unknown_name_gets_close_matches(stream: Stream) -> None:
    with pytest.raises(UnknownTaskError, match="no task 'tsak-3'; did you mean task-3"):
        stream["tsak-3"]
    with pytest.raises(UnknownTaskError, match="5 tasks: task-0"):
        stream["zzz"]


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two tasks named 'a'"):
        Stream("toy", (make_task("a"), make_task("a")))


def test_repr_names_tasks_and_hides_loaders(stream: Stream) -> None:
    assert repr(stream) == "Stream('toy', 5 tasks: task-0, task-1, task-2, task-3, …)"
    assert "load" not in repr(stream[0])


def test_tasks_travel_to_other_processes(stream: Stream) -> None:
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.names == stream.names
    assert torch.equal(copy[0].train.inputs, stream[0].train.inputs)
