"""Hugging Face `datasets` as labelled data; skipped where the package is missing."""

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.data import Examples, StreamedExamples, as_examples
from toys import blobs, quick_learner, refused

datasets = pytest.importorskip("datasets", reason="datasets is not installed")


def clusters(**columns):
    inputs, labels = blobs()
    return datasets.Dataset.from_dict({"x": inputs.tolist(), "label": labels.tolist()} | columns)


@pytest.mark.parametrize("kind", [None, "torch", "numpy"])
def test_a_data_set_is_learned_like_the_arrays_in_it(kind):
    data = clusters().with_format(kind)
    found = as_examples(data)
    inputs, labels = blobs()
    assert isinstance(found, Examples)
    assert torch.equal(found.inputs, inputs)
    assert found.labels.tolist() == labels.tolist()
    learner = quick_learner().add_random_masks(6).learn_task("a", data)
    wanted = quick_learner().add_random_masks(6).learn_task("a", (inputs, labels))
    assert torch.equal(learner.logits(inputs, "a"), wanted.logits(inputs, "a"))
    assert learner.score(data, "a") == wanted.score((inputs, labels), "a") > 0.5


def test_columns_of_labels_by_other_names_and_kinds():
    words = clusters(label=["no", "yes"] * 48).rename_column("label", "labels")
    assert as_examples(words).labels.tolist() == ["no", "yes"] * 48
    refused("one column named label or labels, they have x, y", as_examples,
            clusters().rename_column("label", "y"))  # fmt: skip
    refused("they have x, label, labels", as_examples, clusters(labels=[0] * 96))
    refused("they have label; ", as_examples, clusters().remove_columns("x"))


def test_several_columns_become_inputs_by_name():
    ids = np.arange(96 * 5).reshape(96, 5) % 30
    mask = np.ones((96, 5), dtype=np.int64)
    data = clusters(input_ids=ids.tolist(), attention_mask=mask.tolist()).remove_columns("x")
    found = as_examples(data)
    assert isinstance(found.inputs, il.Inputs)
    assert set(found.inputs.named) == {"input_ids", "attention_mask"}
    assert torch.equal(found.inputs.named["input_ids"], torch.from_numpy(ids))
    assert found.labels.tolist() == blobs()[1].tolist()
    uneven = ids.tolist()
    uneven[3] = uneven[3][:2]
    data = clusters(input_ids=uneven, attention_mask=mask.tolist()).remove_columns("x")
    refused("'input_ids' holds text or rows of unequal lengths; make", as_examples, data)


def test_images_come_channels_first_and_as_pixels():
    pytest.importorskip("PIL")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    for chosen, shape in ((pixels, (4, 3, 6, 5)), (pixels[..., 0], (4, 1, 6, 5))):
        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
        rows = {"image": list(chosen), "label": [0, 1, 0, 1]}
        found = as_examples(datasets.Dataset.from_dict(rows, features=features))
        assert found.pixels
        assert found.inputs.shape == shape
        wanted = torch.from_numpy(chosen).reshape(4, 6, 5, -1).permute(0, 3, 1, 2) / 255
        assert torch.equal(found.inputs, wanted)


def test_transforms_of_the_data_set_are_used_and_what_draws_is_streamed():
    def doubled(rows):
        return {"x": [2 * torch.tensor(x) for x in rows["x"]], "label": rows["label"]}

    def noisy(rows):
        return {"x": [torch.tensor(x) + torch.randn(1) for x in rows["x"]], "label": rows["label"]}

    assert torch.equal(as_examples(clusters().with_transform(doubled)).inputs, 2 * blobs()[0])
    assert isinstance(as_examples(clusters().with_transform(noisy)), StreamedExamples)
    large = as_examples(clusters(), memory_limit=1000)
    assert isinstance(large, StreamedExamples)
    assert torch.equal(large.inputs_at(np.arange(96)), blobs()[0])


def test_what_cannot_be_used_is_refused():
    refused("column 'text' holds text", as_examples,
            clusters(text=["a"] * 96))  # fmt: skip
    refused("hold no example", as_examples, clusters().select([]))
    splits = datasets.DatasetDict({"train": clusters(), "test": clusters()})
    refused("several splits; choose one of train, test", as_examples, splits)
