import hashlib
import json

import numpy as np
import torch
from torch.utils.data import TensorDataset

from impresslearn.data import Examples, StreamedExamples, data_fingerprint
from toys import read_examples

X = torch.arange(12, dtype=torch.float32).reshape(4, 3)
Y = np.array([0, 1, 0, 1])


def test_it_is_a_sha_256_and_stays_what_it_is():
    digest = data_fingerprint(Examples(X, Y))
    kind = {"count": 4, "dtype": "torch.float32", "kind": "Examples", "labels": "i"}
    head = json.dumps({**kind, "shape": [4, 3]}).encode()
    content = head + X.numpy().tobytes() + Y.astype("<i8").tobytes()
    assert digest == hashlib.sha256(content).hexdigest()


def test_equal_data_have_one_fingerprint(tmp_path):
    digest = data_fingerprint(Examples(X, Y))
    np.savez(tmp_path / "a.npz", x=X.numpy(), y=Y.astype(np.uint8))
    for same in (
        Examples(X.clone().requires_grad_(), Y.astype(np.int32)),
        Examples(X.t().contiguous().t(), Y, augment=lambda batch, generator: batch),
        read_examples(tmp_path / "a.npz"),
    ):
        assert data_fingerprint(same) == digest
    wide, narrow = (np.array(["a", "b", "a", "b"], dtype=kind) for kind in ("U9", "U1"))
    assert data_fingerprint(Examples(X, wide)) == data_fingerprint(Examples(X, narrow))


def test_other_data_have_another_one():
    changed = X.clone()
    changed[3, 2] = torch.nextafter(changed[3, 2], torch.tensor(99.0))
    inputs = [X, changed, X.reshape(4, 1, 3), X.half(), X.bfloat16(), X.flip(0)]
    labels = [
        1 - Y,
        Y.astype(str),
        *(np.array(["a", *two, "e"]) for two in (("b", "c,d"), ("b,c", "d"))),
    ]
    different = [
        *(Examples(each, Y) for each in inputs),
        *(Examples(X, each) for each in labels),
        *(Examples(X[:count], Y[:count]) for count in (0, 1, 2)),
        StreamedExamples(TensorDataset(X), Y),
        StreamedExamples(TensorDataset(X), 1 - Y),
        StreamedExamples(TensorDataset(X[:2]), Y[:2]),
    ]
    assert len({data_fingerprint(examples) for examples in different}) == len(different)


def test_of_streamed_data_only_the_labels_count():
    one, other = TensorDataset(X), TensorDataset(-X)
    assert data_fingerprint(StreamedExamples(one, Y)) == data_fingerprint(
        StreamedExamples(other, Y, workers=3)
    )
