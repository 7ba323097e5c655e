"""The fingerprint of a data set: stores and job caches compare it with that of an earlier day."""

import hashlib
import json

import numpy as np
import torch
from torch.utils.data import TensorDataset

from impresslearn.data import Examples, StreamedExamples, data_fingerprint

X = torch.arange(12, dtype=torch.float32).reshape(4, 3)
Y = np.array([0, 1, 0, 1])


def test_it_is_a_sha_256_of_what_the_data_are():
    kind = {"count": 4, "dtype": "torch.float32", "kind": "Examples", "labels": "i"}
    head = json.dumps({**kind, "shape": [4, 3]}).encode()
    content = head + X.numpy().tobytes() + Y.astype("<i8").tobytes()
    for same in (
        Examples(X, Y),
        Examples(X.clone().requires_grad_(), Y.astype(np.int32)),
        Examples(X.t().contiguous().t(), Y, augment=lambda batch, generator: batch),
    ):
        assert data_fingerprint(same) == hashlib.sha256(content).hexdigest()


def test_other_data_have_another_one():
    inputs = [X, X.nextafter(X + 1), X.reshape(4, 1, 3), X.half(), X.bfloat16(), X.flip(0)]
    texts = [["a", "b", "c,d", "e"], ["a", "b,c", "d", "e"]]
    labels = [1 - Y, Y.astype(str), *map(np.array, texts)]
    digests = [data_fingerprint(Examples(each, Y)) for each in inputs]
    digests += [data_fingerprint(Examples(X, each)) for each in labels]
    digests += [data_fingerprint(Examples(X[:count], Y[:count])) for count in (0, 1, 2)]
    for each in (Y, 1 - Y, Y[:2]):  # of streamed data only the labels count
        digests.append(data_fingerprint(StreamedExamples(TensorDataset(X), each)))
        assert data_fingerprint(StreamedExamples(TensorDataset(-X), each, 3)) == digests[-1]
    assert len(set(digests)) == len(digests)
    wide = Examples(X, np.array(texts[0], dtype="U9"))
    assert data_fingerprint(wide) in digests
