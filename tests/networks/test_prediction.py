"""Logits of a task in parts, norms while learning, and the cache of effective weights."""

import pytest
import torch
from torch import nn

from impresslearn import adapt
from impresslearn.data import StreamedBatches, StreamedExamples, TensorBatches, even_parts
from impresslearn.networks.prediction import BATCH, TaskView, WeightCache
from toys import blobs


class Streamed(torch.utils.data.TensorDataset):
    """Examples that are read one at a time."""

    def batches(self):
        examples = StreamedExamples(self, self.tensors[1].numpy())
        index_of = {label: label for label in range(3)}
        return StreamedBatches(examples, index_of, torch.device("cpu"))


@pytest.mark.parametrize(
    ("rows", "batch_size"), [(9, 8), (10, 8), (3, 2), (7, 3), (8, 8), (2049, BATCH)]
)
def test_statistics_of_the_batch_are_never_those_of_a_remainder(rows, batch_size):
    """The last part is as large as the others, up to one, and `accuracy` sees the same parts."""
    net = nn.Sequential(nn.Linear(16, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 3))
    backbone = adapt(net, norm="batch")
    inputs = blobs(count=rows)[0]
    view = TaskView(backbone.weights, None, 3)
    logits = view.logits(backbone, inputs, batch_size)
    sizes = even_parts(rows, batch_size)
    assert min(sizes) >= max(2, max(sizes) - 1)
    expected = [backbone.forward({}, part) for part in inputs.split(sizes)]
    torch.testing.assert_close(logits, torch.cat(expected))
    targets = logits.argmax(dim=1)
    for source in (TensorBatches(inputs, targets), Streamed(inputs, targets).batches()):
        assert view.accuracy(backbone, source, batch_size) == 1


def test_the_cache_keeps_what_was_used_last():
    cache, made = WeightCache(limit=3 * 40), []

    def get(name, count=10, **settings):
        return cache.get(name, lambda: made.append(name) or {"w": torch.ones(count)}, **settings)

    weights = get("a")
    assert get("a") is weights
    for name in "bcad":  # "b" is the one used longest ago
        get(name)
    for name in "acdb":
        get(name)
    assert made == [*"abcdb"]
    assert get("big", 1000) is not get("big", 1000)
    assert get("b") is get("b")
    # Going through all tasks once drops nobody's weights.
    assert get("new", evict_others=False) is not get("new", evict_others=False)
