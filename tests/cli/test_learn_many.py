"""Lists of data sets, what a task keeps of its data, and what a new store does to its inputs."""

import numpy as np
import pytest
import torch

from impresslearn import Examples, InputError
from impresslearn.cli.data_files import inputs_settings, kept_inputs, reader_for
from impresslearn.cli.learn_many import new_preprocessing
from impresslearn.cli.learn_options import data_sets_in
from impresslearn.data.files import FileReader
from toys import blobs, quick_learner


def test_what_a_task_keeps_of_its_inputs(tmp_path):
    given = FileReader(label_column="y", size=8, mean=(0.1, 0.2, 0.3))
    kept = {"size": 8, "mean": [0.1, 0.2, 0.3]}
    assert inputs_settings(given) == kept
    learner = quick_learner()
    assert kept_inputs(learner) == {}
    learner.learn_basis("a", blobs(), note={"inputs": kept})
    learner.learn_basis("b", blobs(1), note={"data": 3, "inputs": [1]})
    info = learner.tasks_["a"]
    assert kept_inputs(learner, info) == kept_inputs(learner) == kept
    assert kept_inputs(learner, learner.tasks_["b"]) == {}
    for task in (None, info):
        later = reader_for(learner, FileReader(size=4), tmp_path, task)
        assert (later.size, later.mean, later.std) == (4, [0.1, 0.2, 0.3], None)


def test_standardising():
    examples = Examples(3 + 2 * torch.randn(500, 16), np.zeros(500, int))
    found = new_preprocessing(FileReader(), examples, standardise=True)
    assert (found.mean, found.std) == (pytest.approx(3, abs=0.2), pytest.approx(2, abs=0.2))
    assert new_preprocessing(FileReader(mean=1.0), examples, standardise=True).mean == 1
    flat = Examples(torch.ones(4, 2), np.zeros(4, int))
    with pytest.raises(InputError, match="cannot be standardised"):
        new_preprocessing(FileReader(), flat, standardise=True)


def test_data_sets_of_a_folder(tmp_path):
    for name in ("b.npz", "a.CSV", "notes.txt", ".hidden.csv", "x.npy"):
        (tmp_path / name).touch()
    (tmp_path / "c.d").mkdir()
    assert list(data_sets_in(tmp_path)) == ["a", "b", "c.d"]
    (tmp_path / "b.csv").touch()
    with pytest.raises(InputError, match="would both be task 'b'"):
        data_sets_in(tmp_path)
