"""Data sets of Hugging Face, and the images that they hold, mean the same wherever they come in."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import impresslearn as il
from impresslearn.data import as_examples
from impresslearn.errors import InputError
from toys import blobs, lenet, quick_learner

datasets = pytest.importorskip("datasets")
Image = pytest.importorskip("PIL.Image")


def rows():
    inputs, labels = blobs(1)
    return datasets.Dataset.from_dict({"x": inputs.tolist(), "label": labels.tolist()})


FORMS = {
    "plain": rows,
    "torch": lambda: rows().with_format("torch"),
    "numpy": lambda: rows().with_format("numpy"),
    "streamed": lambda: rows().to_iterable_dataset(),
    "loaded": lambda: DataLoader(rows().with_format("torch"), 16, shuffle=True),
    "streamed and loaded": lambda: DataLoader(rows().to_iterable_dataset(), 16),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_with_a_label_are_read(form):
    examples, (inputs, labels) = as_examples(FORMS[form]()), blobs(1)
    torch.testing.assert_close(examples.inputs, inputs)
    assert (examples.labels == labels.numpy()).all()


def test_inputs_are_one_column():
    learner = quick_learner(lenet()).add_random_masks(3).learn_task("a", rows())
    assert learner.score(rows(), "a") > 0.8
    assert (learner.predict(rows()["x"], "a") == learner.predict(blobs(1)[0], "a")).all()
    with pytest.raises(InputError, match=r"one column of the data set, .* out of x, label"):
        learner.predict(rows(), "a")


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"x": [[1.0]], "kind": [0]}, "has the columns x, kind; it needs one of label"),
        ({"label": [0]}, "has the columns label; it needs"),
        ({"x": [[1.0]], "text": ["a"], "label": [0]}, "columns x, text are no numbers"),
        ({"x": [], "label": []}, "hold no example"),
    ],
)
def test_other_columns_are_named(columns, line):
    with pytest.raises(InputError, match=line):
        as_examples(datasets.Dataset.from_dict(columns))


def test_images_are_the_same_in_every_verb(tmp_path):
    images, labels = [], [place % 3 for place in range(48)]
    for place, label in enumerate(labels):
        values = np.random.default_rng(place).integers(0, 120, (8, 8, 3), dtype=np.uint8)
        values[:, :, label] += 120
        images.append(Image.fromarray(values))
        (tmp_path / str(label)).mkdir(exist_ok=True)
        images[-1].save(tmp_path / str(label) / f"{place:02}.png")
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"image": images, "label": labels}, features=kinds)
    backbone = il.create_backbone("lenet_300_100", 3, in_features=192, widths=(24, 12))
    learner = quick_learner(backbone).add_random_masks(4).learn_task("a", data)
    logits = learner.logits(images, "a")
    for other in (data["image"], np.stack(images).transpose(0, 3, 1, 2)):
        assert torch.equal(learner.logits(list(other), "a"), logits)
    assert learner.score((images, labels), "a") == learner.score(data, "a") > 0.8
    of_folder = as_examples(tmp_path)
    assert sorted(map(float, of_folder.inputs.flatten(1).sum(1))) == pytest.approx(
        sorted(map(float, as_examples(data).inputs.flatten(1).sum(1)))
    )
    grey = [image.convert("L") for image in images]
    assert as_examples((grey, labels)).inputs.shape == (48, 1, 8, 8)
    deep = Image.fromarray(np.full((8, 8), 40_000, np.uint16))
    with pytest.raises(InputError, match="more than 8 bits a channel"):
        learner.predict([deep], "a")
    with pytest.raises(InputError, match="images must have one size"):
        as_examples(([images[0], images[1].resize((9, 9))], [0, 1]))


class Triples(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index, torch.zeros(3), 0


def test_items_that_are_no_pairs_are_named():
    with pytest.raises(InputError, match=r"must be pairs \(input, label\), item 0 is a tuple of 3"):
        as_examples(Triples())
