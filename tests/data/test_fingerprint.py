import hashlib
import json

import numpy as np
import pytest
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
    apart = torch.arange(12, dtype=torch.float32).reshape(4, 3).t().contiguous().t()
    np.savez(tmp_path / "a.npz", x=X.numpy(), y=Y.astype(np.uint8))
    rows = [",".join(map(str, [*row, label])) for row, label in zip(X.tolist(), Y, strict=True)]
    (tmp_path / "a.csv").write_text("a,b,c,label\n" + "\n".join(rows))
    for same in (
        Examples(X.clone().requires_grad_(), Y.astype(np.int32)),
        Examples(apart, Y, augment=lambda batch, generator: batch),
        read_examples(tmp_path / "a.npz"),
        read_examples(tmp_path / "a.csv"),
    ):
        assert data_fingerprint(same) == digest
    wide, narrow = np.array(["a", "b", "a", "b"], dtype="U9"), np.array(["a", "b", "a", "b"])
    assert data_fingerprint(Examples(X, wide)) == data_fingerprint(Examples(X, narrow))


def test_other_data_have_another_one():
    changed = X.clone()
    changed[3, 2] = torch.nextafter(changed[3, 2], torch.tensor(99.0))
    different = [
        Examples(X, Y),
        Examples(changed, Y),
        Examples(X.reshape(4, 1, 3), Y),
        Examples(X.half(), Y),
        Examples(X.bfloat16(), Y),
        Examples(X.flip(0), Y),
        Examples(X, 1 - Y),
        Examples(X, Y.astype(str)),
        Examples(X, np.array(["a", "b", "c,d", "e"])),
        Examples(X, np.array(["a", "b,c", "d", "e"])),
        Examples(X[:2], Y[:2]),
        StreamedExamples(TensorDataset(X), Y),
        StreamedExamples(TensorDataset(X), 1 - Y),
        StreamedExamples(TensorDataset(X[:2]), Y[:2]),
    ]
    assert len({data_fingerprint(examples) for examples in different}) == len(different)


@pytest.mark.parametrize("count", [0, 1])
def test_few_examples(count):
    assert len(data_fingerprint(Examples(X[:count], Y[:count]))) == 64


def test_of_streamed_data_only_the_labels_count():
    one, other = TensorDataset(X), TensorDataset(-X)
    assert data_fingerprint(StreamedExamples(one, Y)) == data_fingerprint(
        StreamedExamples(other, Y, workers=3)
    )
