import numpy as np
import pytest
import torch

from impresslearn.coefficients.mixing import uniform_coefficients
from impresslearn.coefficients.quantisation import store_coefficients
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.state.tasks import EntropyProfile, LearnedTask, TaskTable, label_map_bytes


@pytest.mark.parametrize(
    ("classes", "size"),
    [
        ((0, 1), 2),
        (tuple(range(1000)), 2),
        ((1, 2), 2 + 2),
        ((0, 255), 2 + 2),
        ((0, 256), 2 + 4),
        ((-1, 1), 2 + 2),
        ((-1, 255), 2 + 4),
        ((-200, 300, 7), 2 + 6),
        ((0, 70_000), 2 + 8),
        ((-5, 2**40), 2 + 16),
        (("a", "b"), 2 + 4),
        (("", "Straße"), 2 + 1 + 8),
        (("0", "1"), 2 + 4),
    ],
)
def test_bytes_of_a_label_map(classes, size):
    assert label_map_bytes(classes) == size


def task(name, **settings):
    return LearnedTask(name, (0, 1), num_masks=2, **settings)


def test_a_basis_task_counts_its_mask():
    info = task("seven", mask="seven", mask_bytes=100, profile=EntropyProfile(0.1, 0.9)).info()
    assert (info.name, info.role, info.classes, info.num_masks) == ("seven", "basis", (0, 1), 2)
    assert info.bytes == 100 + 2 + 4
    assert info.breakdown["mask"] == 100


def test_a_learned_task_counts_coefficients_and_statistics():
    from toys import lenet

    stored = store_coefficients(uniform_coefficients(lenet().layers, 5), "float16")
    statistics = {"mean": torch.zeros(7), "var": torch.zeros(7)}
    info = task("eight", coefficients=stored, statistics=statistics).info()
    assert info.role == "learned"
    assert info.breakdown == {
        "mask": 0,
        "coefficients": 5 * 3 * 2,
        "statistics": 2 * 7 * 4,
        "labels": 2,
        "entropies": 0,
    }
    assert info.bytes == sum(info.breakdown.values())


def test_a_table_is_a_mapping_in_the_order_of_learning():
    table = TaskTable()
    for name in ("b", "a", "c"):
        table.add(task(name, mask="m" if name == "a" else None))
    assert list(table) == ["b", "a", "c"]
    assert len(table) == 3
    assert "a" in table
    assert "z" not in table
    assert table["a"].role == "basis"
    assert [info.role for info in table.values()] == ["learned", "basis", "learned"]
    assert table.learned("a") is table.learned("a")
    assert repr(table) == "TaskTable(3 tasks)"
    assert not hasattr(table, "__setitem__")


def test_names_are_new_and_not_empty():
    table = TaskTable()
    table.add(task("a"))
    with pytest.raises(InputError, match="'a' was learned already"):
        table.add(task("a"))
    for name in ("", None, 3, b"a", ["a"]):
        with pytest.raises(InputError, match="non-empty string, got"):
            table.check_new(name)
    assert list(table) == ["a"]


def test_unknown_names_offer_close_ones():
    table = TaskTable()
    with pytest.raises(UnknownTaskError, match="no task named 'x': nothing was learned yet"):
        table["x"]
    for number in range(1000):
        table.add(task(f"rotated-{number}"))
    with pytest.raises(UnknownTaskError, match=r"'rotated-7x' among 1000; close: .*'rotated-7'"):
        table["rotated-7x"]
    for name in ("?", None, 3, ["rotated-1"], np.zeros(2)):
        with pytest.raises(UnknownTaskError, match="close: 'rotated-") as caught:
            table[name]
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200
    with pytest.raises(KeyError):
        table["?"]
