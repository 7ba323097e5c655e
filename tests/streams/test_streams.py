"""Tasks, streams, and streams of your own arrays."""

import pickle
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from impresslearn.data import Examples, StreamedExamples
from impresslearn.streams import Stream, Task
from toys import refused

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


def load():
    return Examples(torch.zeros(3, 2), np.arange(3))


@pytest.fixture
def stream():
    return Stream("toy", tuple(Task(f"task-{i}", (0, 1, 2), load, load) for i in range(5)))


def test_a_task_makes_its_data_at_each_access_and_not_before():
    counted = Mock(side_effect=load)
    task = Task("a", (0, 1, 2), counted, counted)
    assert counted.call_count == 0
    assert len(task.train) == len(task.train) == len(task.test) == 3
    assert counted.call_count == 3


def test_a_stream_is_a_sequence_that_travels_to_other_processes(stream):
    assert len(stream) == 5
    assert stream.names == tuple(f"task-{i}" for i in range(5))
    assert [task.name for task in stream] == list(stream.names)
    assert stream[-1] is stream["task-4"] is stream[np.int64(4)]
    assert stream[1] in stream
    assert ("task-1" in stream, "task-9" in stream) == (True, False)
    part = stream[1:4:2]
    assert (part.name, part.names) == ("toy", ("task-1", "task-3"))
    assert repr(stream) == "Stream('toy', 5 tasks: task-0, task-1, task-2, task-3, …)"
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.names == stream.names
    assert torch.equal(copy[0].train.inputs, stream[0].train.inputs)
    refused("index out of range", stream.__getitem__, 5, error=IndexError)


def test_settings_are_chosen_on_what_is_held_out_of_the_training_examples():
    labels = np.repeat(["a", "b"], [10, 30])
    inputs = torch.arange(40.0)[:, None]
    examples = Examples(inputs, labels, augment=lambda batch, _: batch)
    task = Task("t", ("a", "b"), lambda: examples, load)
    chosen = Stream("s", (task,)).for_validation(0.2, seed=1)[0]
    kept, held = chosen.train, chosen.test
    assert sorted(torch.cat([kept.inputs, held.inputs])[:, 0].tolist()) == inputs[:, 0].tolist()
    assert [(held.labels == each).sum() for each in "ab"] == [2, 6]
    assert kept.augment is not None
    assert held.augment is None
    pairs = StreamedExamples(TensorDataset(inputs), labels)
    streamed = Stream("s", (Task("t", ("a", "b"), lambda: pairs, load),))
    assert streamed.for_validation(0.2, seed=1)[0].test.labels.tolist() == held.labels.tolist()
    again = Stream("s", (task,)).for_validation(0.2, seed=2)[0].test
    assert held.inputs.tolist() != again.inputs.tolist()
