"""The scale that a first task's inputs imply holds for all tasks, in every copy and process."""

import numpy as np

from impresslearn import Prepared, load, open_store
from toys import blobs, quick_learner


def pixels(seed):
    inputs, labels = blobs(seed)
    low, high = inputs.min(), inputs.max()
    return ((inputs - low) / (high - low) * 255).byte().numpy(), labels.numpy()


def with_tasks(**tasks):
    return quick_learner().add_random_masks(12).learn_tasks(tasks)


def test_prepared_data_keep_the_scale(tmp_path):
    first, second = pixels(0), pixels(1)
    prepared = Prepared((first[0] / np.float32(255), first[1]))
    integers = second[0].astype(np.int64)
    learner = with_tasks(a=first, p=prepared, b=second)
    before = learner.predict(integers, "b")
    learner.update_task("a", prepared).save(tmp_path / "a.impress")
    assert (load(tmp_path / "a.impress").predict(integers, "b") == before).all()
    learner.remove_task("a")
    assert (learner.predict(integers, "b") == before).all()


def test_a_reader_sees_that_the_first_task_is_another_one(tmp_path):
    first, second = pixels(0), pixels(1)
    path, floats = tmp_path / "a.impress", second[0].astype(np.float32)
    with_tasks(a=first).save(path)
    with open_store(path, readonly=True) as reader, open_store(path, progress=False) as writer:
        reader.score(first, "a")
        writer.remove_task("a").learn_task("a", (floats, second[1]))
        integers = second[0].astype(np.int64)
        assert (reader.predict(integers, "a") == writer.predict(integers, "a")).all()
        assert reader.score((floats, second[1]), "a") > 0.9
