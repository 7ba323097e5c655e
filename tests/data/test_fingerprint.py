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
    wide, narrow = (np.array(["a", "b", "a", "b"], dtype=kind) for kind in ("U9", "U1"))
    assert data_fingerprint(Examples(X, wide)) == data_fingerprint(Examples(X, narrow))


def test_other_data_have_another_one():
    changed = X.clone()
    changed[3, 2] = torch.nextafter(changed[3, 2], torch.tensor(99.0))
    inputs = [X, changed, X.reshape(4, 1, 3), X.half(), X.bfloat16(), X.flip(0)]
    labels = [
        1 - Y,
        Y.astype(str),
        np.array(["a", "b", "c,d", "e"]),
        np.array(["a", "b,c", "d", "e"]),
    ]
    different = [
        *(Examples(each, Y) for each in inputs),
        *(Examples(X, each) for each in labels),
        *(Examples(X[:count], Y[:count]) for count in (0, 1, 2)),
        *(StreamedExamples(TensorDataset(X), each) for each in (Y, 1 - Y, Y[:2])),
    ]
    assert len({data_fingerprint(examples) for examples in different}) == len(different)


def test_of_streamed_data_only_the_labels_count():
    first, second = StreamedExamples(TensorDataset(X), Y), StreamedExamples(TensorDataset(-X), Y, 3)
    assert data_fingerprint(first) == data_fingerprint(second)
