"""What a learner keeps of its tasks: names, the bytes counted, and the memory of choosing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.superposition import Superposition
from impresslearn.masks import draw_masks
from impresslearn.masks.bank import MaskInfo
from impresslearn.state.candidates import KnownTasks, superposition_bytes
from impresslearn.state.tasks import LearnedTask, TaskTable, check_new_name, label_map_bytes
from toys import blobs, quick_learner


@pytest.mark.parametrize(
    ("classes", "size"),
    [(tuple(range(1000)), 2), (("", "Straße"), 2 + 1 + 8), (("0", "1"), 2 + 4)],
)
def test_bytes_of_a_label_map(classes, size):
    assert label_map_bytes(classes) == size


@given(st.sets(st.integers(-(2**62), 2**62), min_size=2, max_size=9))
def test_whole_numbers_as_labels_take_the_smallest_type_that_holds_them(labels):
    kinds = ["u1", "u2", "u4", "u8"] if min(labels) >= 0 else ["i1", "i2", "i4", "i8"]
    ranges = [np.iinfo(kind) for kind in kinds]
    least = next(each for each in ranges if each.min <= min(labels) <= max(labels) <= each.max)
    consecutive = sorted(labels) == list(range(len(labels)))
    size = 0 if consecutive else len(labels) * (least.bits // 8)
    assert label_map_bytes(tuple(sorted(labels))) == 2 + size


def table_of(*tasks):
    return TaskTable({task.name: task for task in tasks})


def test_a_table_is_a_mapping_in_the_order_of_learning_of_new_names():
    with pytest.raises(UnknownTaskError, match="no task named 'x': nothing was learned yet"):
        TaskTable({})["x"]
    table = table_of(*(LearnedTask(n, (0, 1), 2, mask="m" if n == "a" else None) for n in "bac"))
    assert [info.role for info in table.values()] == ["learned", "basis", "learned"]
    assert (list(table), "a" in table, "z" in table) == (["b", "a", "c"], True, False)
    assert not hasattr(table, "__setitem__")
    with pytest.raises(InputError, match="'a' was learned already"):
        check_new_name("a", table)


def test_unknown_names_offer_close_ones():
    table = table_of(*(LearnedTask(f"rotated-{number}", (0, 1), 2) for number in range(1000)))
    with pytest.raises(UnknownTaskError, match=r"'rotated-7x' among 1000; close: .*'rotated-7'"):
        table["rotated-7x"]
    for name in ("?", None, 3, ["rotated-1"], np.zeros(2)):
        with pytest.raises(KeyError, match="among 1000(, such as|; close:) 'rotated-") as caught:
            table[name]
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "settings",
    [{}, {"granularity": "unit"}, {"output_scale": True}, {"input_scale": True}],
    ids=str,
)
def test_the_bytes_of_a_superposition_are_those_it_holds_and_twice_as_many(settings):
    learner = quick_learner(**settings)
    learner.learn_basis("a", blobs(0)).learn_task("b", blobs(2)).learn_task("c", blobs(3))
    state = learner._state
    for among in ("all", "basis", "learned", ["a", "c"]):
        chosen = [task.mixture() or task.view().weights for task in KnownTasks(state, among)]
        held = Superposition(state.backbone, state.bank, chosen)
        tensors = [*held._alphas, *(w for dense in held._dense.values() for w in dense.values())]
        most = 3 * sum(tensor.nbytes for tensor in tensors)
        # Dense tasks are counted as coefficients too.
        assert most <= superposition_bytes(state, among) <= 1.2 * most


def test_random_masks_of_taken_names_change_nothing():
    learner = quick_learner()
    masks = draw_masks(learner.bank_, 2)
    learner._state.commit_masks(masks)
    other = MaskInfo("x", "given", (1, 1, 1)), masks[0][1]
    with pytest.raises(InputError, match="'random-0'; choose another name"):
        learner._state.commit_masks([other, *masks])
    assert learner.bank_.names == ("random-0", "random-1")
