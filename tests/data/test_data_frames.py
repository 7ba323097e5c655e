"""DataFrames in every verb: columns by name and of several types; channels of several scales."""

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.data import as_examples
from impresslearn.errors import InputError
from toys import FEATURES, blobs, lenet, quick_learner

pandas = pytest.importorskip("pandas")
NAMES = [f"c{place}" for place in range(FEATURES)]
PREPROCESSINGS = {
    "none": lambda _: None,
    "numbers": lambda _: il.Preprocessing(mean=0.1, std=2.0),
    "measured": il.Preprocessing.standardising,
}


def table_of(seed=1):
    inputs, labels = blobs(seed)
    return pandas.DataFrame(inputs.numpy(), columns=NAMES), labels.numpy()


@pytest.mark.parametrize("how", PREPROCESSINGS)
def test_columns_are_found_by_name_in_every_verb(how, tmp_path):
    table, labels = table_of()
    learner = quick_learner(lenet(), preprocessing=PREPROCESSINGS[how](table)).add_random_masks(4)
    learner.learn_tasks({"a": (table, labels), "b": (table[NAMES[::-1]], labels)})
    learner.save(tmp_path / "a.impress")
    for again in (learner, il.load(tmp_path / "a.impress")):
        again.update_task("b", (table[NAMES[::-1]], labels))
        for names in (NAMES, NAMES[::-1]):
            assert again.score((table[names], labels), "a") > 0.8
            assert again.infer_task(table[names][:8]).best in ("a", "b")
            assert (again.predict(table[names], "a") == again.predict(table, "a")).all()
            assert torch.equal(again.logits(table[names], "b"), again.logits(table, "b"))
        for verb in (again.predict, again.logits):
            with pytest.raises(InputError, match="the table has a column 'C0'"):
                verb(table.rename(columns=str.upper), "a")
        with pytest.raises(InputError, match="the table has no column 'c3'"):
            again.learn_task("c", (table.drop(columns="c3"), labels))


KINDS = {
    "bool": lambda column: column > 0,
    "nullable bool": lambda column: (column > 0).astype("boolean"),
    "nullable float": lambda column: column.astype("Float64"),
    "nullable integer": lambda column: column.round().astype("Int64"),
    "small integer": lambda column: column.round().astype("int8"),
    "objects": lambda column: column.astype(object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_several_types(kind):
    table, labels = table_of()
    expected = table.copy()
    expected["c2"] = np.asarray(KINDS[kind](table["c2"]).astype(float), dtype=float)
    table["c2"] = KINDS[kind](table["c2"])
    inputs = as_examples((table, labels)).inputs
    torch.testing.assert_close(inputs, torch.tensor(expected.to_numpy(), dtype=torch.float32))


@pytest.mark.parametrize(
    "change",
    [
        lambda column: column.astype("Float64").mask(column > 1),
        lambda column: (column > 0).map({True: "yes", False: "no"}),
        lambda column: (column > 0).map({True: "1", False: "0"}).astype("category"),
        lambda column: pandas.to_datetime(column, unit="s"),
        lambda column: column.astype("complex64"),
    ],
)
def test_a_column_of_anything_else_is_named(change):
    table, labels = table_of()
    table["c2"] = change(table["c2"])
    with pytest.raises(InputError, match="'c2'|complex"):
        as_examples((table, labels))


def test_channels_that_differ_in_scale_are_measured_one_by_one():
    inputs = torch.randn(64, 3, 20) * torch.tensor([1.0, 300.0, 1e-3])[:, None] + 5
    made = il.Preprocessing.standardising(inputs)
    assert len(made.std) == 3
    assert made.apply(inputs).std(dim=(0, 2)) == pytest.approx(torch.ones(3), rel=0.01)
    images = torch.rand(64, 28, 28)
    images[:, :9] = 0  # rows that are dark in all images are no channels
    assert isinstance(il.Preprocessing.standardising(images).std, float)
    assert isinstance(il.Preprocessing.standardising((255 * images).byte()).std, float)
