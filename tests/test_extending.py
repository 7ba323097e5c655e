"""Your own method and stream are used like the library's."""

import numpy as np

import impresslearn as il
from impresslearn import streams
from toys import blobs, lenet


class NearestMean:
    """Predicts the class whose mean is nearest, with means for each task."""

    def __init__(self, seed, power=2):
        self.seed, self.power, self.means = seed, power, {}

    def learn_task(self, name, data):
        labels = np.unique(data.labels)
        self.means[name] = labels, [data.inputs[data.labels == k].mean(0) for k in labels]

    def predict(self, inputs, task):
        labels, means = self.means[task]
        distances = [((inputs - mean).abs() ** self.power).flatten(1).sum(1) for mean in means]
        return labels[np.argmin(distances, 0)]

    def score(self, data, task):
        return float((self.predict(data.inputs, task) == data.labels).mean())


def pairs(tasks, *, shift=0):
    """Two Gaussian clusters a task, moved."""
    made = {f"t{i}": (blobs(i, classes=2), blobs(i, classes=2)) for i in range(tasks)}
    moved = {name: tuple((x + shift, y) for x, y in pair) for name, pair in made.items()}
    return streams.from_arrays(moved, "pairs")


def test_a_method_and_a_stream_are_compared_with_the_library_s():
    stream = pairs(3, shift=1)
    recipe = il.Recipe(epochs=0, min_steps=20)
    methods = {
        "mine": (NearestMean, {"power": 1}),
        "supsup": lambda seed: il.SupSup(lenet(), seed=seed, basis_recipe=recipe),
    }
    compared = il.compare(methods, stream, progress=False)
    mine = compared.runs[0].evaluation
    assert mine.tasks == ("t0", "t1", "t2")
    assert mine.accuracy > 0.9
    assert mine.forgetting == mine.backward_transfer == 0
    assert mine.bytes == mine.roles == {}
