"""Labels that differ are never made one class, and those that are one are found again.

A label or a task is the same in both of Unicode's spellings: "é", and "e" with an accent.
"""

import enum
import unicodedata

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.data import as_examples, encode_labels, label_array
from impresslearn.data.file_reader import FileReader
from impresslearn.streams import from_arrays
from toys import blobs, quick_learner, refused


class Number(enum.IntEnum):
    ONE = 1


class Name(str, enum.Enum):
    CAT = "cat"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        (np.array([[3], [4]], dtype=np.int16), [3, 4]),
        ([2**53 + 1, 1.0], [2**53 + 1, 1]),
        (np.array([2**24 - 1, -0.0], np.float32), [2**24 - 1, 0]),
        (torch.tensor([3, 4], dtype=torch.uint64), [3, 4]),
        (torch.tensor([True, False]), [1, 0]),
        ([torch.tensor(2**60 + 1), np.int8(3), [4], np.array([5])], [2**60 + 1, 3, 4, 5]),
        ([np.str_("a"), "b"], ["a", "b"]),
        ([Number.ONE, 2], [1, 2]),
        ([Name.CAT, "dog"], ["cat", "dog"]),
        (["a\nb\t", "", " a", "a\0b"], ["a\nb\t", "", " a", "a\0b"]),
    ],
)
def test_labels_keep_their_values(labels, expected):
    array = label_array(labels)
    assert array.tolist() == expected
    assert array.dtype == np.int64 or array.dtype.kind == "U"


def test_a_label_is_found_by_its_value_and_kind():
    classes = (4, 9)
    for label in (9, 9.0, np.int8(9), np.float32(9), torch.tensor(9)):
        assert encode_labels(label_array([label, 4]), classes).tolist() == [1, 0]


ONE, TWO = "café", unicodedata.normalize("NFD", "café")
INPUTS, NUMBERS = blobs()
LABELS = np.array(["a", "b", ONE])[NUMBERS]
OTHERS = np.array(["a", "b", TWO])[NUMBERS]


def test_labels_and_tasks_in_every_verb(tmp_path):
    learner = quick_learner().add_random_masks(3).learn_task(TWO, (INPUTS, OTHERS))
    learner.save(tmp_path / "a.impress", tasks=[TWO, ONE])
    for each in (learner, il.load(tmp_path / "a.impress")):
        assert list(each.tasks_) == [ONE]
        assert TWO in each.tasks_
        assert each.tasks_[TWO].classes == ("a", "b", ONE)
        assert each.score((INPUTS, LABELS), TWO) == each.score((INPUTS, OTHERS), ONE) > 0.8
        assert set(each.predict(INPUTS, [TWO, ONE] * 48)) == {"a", "b", ONE}
        assert each.zero_shot_score((INPUTS, LABELS), classes=["a", "b", TWO]) >= 0
        assert each.infer_task(INPUTS, among=[TWO]).best == ONE
        refused("was learned already", each.learn_task, TWO, (INPUTS, LABELS))
        each.update_task(TWO, (INPUTS, OTHERS)).restore_task(TWO, 1)
        assert len(each.versions(TWO)) == 3
        assert each.tasks_[ONE].classes == ("a", "b", ONE)
    learner.remove_task(TWO).learn_basis(TWO, (INPUTS, OTHERS))
    assert list(learner.tasks_) == list(learner.bank_.names[-1:]) == [ONE]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_files(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    path, table = tmp_path / f"a{suffix}", pandas.DataFrame({TWO: INPUTS[:, 0], f"{TWO}2": OTHERS})
    if suffix == ".npz":
        np.savez(path, inputs=INPUTS, labels=OTHERS)
    elif suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    columns = None if suffix == ".npz" else [TWO]
    reader = FileReader(f"{ONE}2", il.Preprocessing(columns=columns))
    assert reader.examples(path).labels.tolist() == LABELS.tolist()


def test_columns_of_a_table():
    pandas = pytest.importorskip("pandas")
    names = [f"c{place}" for place in range(15)]
    table = pandas.DataFrame(INPUTS.numpy(), columns=[*names, TWO])
    learner = quick_learner().add_random_masks(3).learn_task("a", (table, NUMBERS))
    turned = table.rename(columns={TWO: ONE})[[ONE, *names]]
    assert (learner.predict(turned, "a") == learner.predict(table, "a")).all()


def test_folders_and_streams(tmp_path):
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 4))
    for part in ("train", "test"):
        for place, label in enumerate((ONE, TWO, "b")):
            folder = tmp_path / TWO / part / label
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{place}.png")
    assert sorted(as_examples(tmp_path / TWO / "train").labels) == ["b", ONE, ONE]
    (task,) = from_arrays({TWO: (tmp_path / TWO / "train", tmp_path / TWO / "test")})
    assert (task.name, sorted(task.classes)) == (ONE, ["b", ONE])
    assert sorted(task.train.labels) == ["b", ONE, ONE]
    stream = from_arrays({TWO: ((INPUTS, LABELS), (INPUTS, OTHERS))})
    assert stream.names == (ONE,)
