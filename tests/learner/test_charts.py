"""Charts that look inside: what they draw is what the learner holds, and they become pictures."""

import json
import re

import numpy as np
import pytest

import impresslearn as il
from toys import blobs, lenet, quick_learner, refused


@pytest.fixture(scope="module")
def learner():
    made = quick_learner(lenet(4), granularity="unit")
    for seed, name in enumerate("ab"):
        made.learn_basis(name, blobs(seed))
    for seed, name in enumerate(("c", "d", "c again")):
        made.learn_task(name, blobs(5 if "c" in name else seed), seed=7)
    return made


def values(chart, *keys):
    """The rows of a chart that have these keys."""
    found = []

    def look(part):
        if isinstance(part, dict):
            if set(keys) <= set(part):
                found.append(part)
            for each in part.values():
                look(each)
        elif isinstance(part, list):
            for each in part:
                look(each)

    look(json.loads(chart.to_json()))
    return found


def test_shares_of_masks_add_up(learner):
    rows = values(il.charts.mask_usage(learner), "x", "y", "value")
    assert {row["y"] for row in rows} == {"c", "d", "c again"}
    for task in ("c", "d"):
        shares = {row["x"]: row["value"] for row in rows if row["y"] == task}
        assert sum(shares.values()) == pytest.approx(1)
        numbers = sum(alpha.abs().mean(dim=1) for alpha in learner.coefficients_[task].alpha)
        assert list(shares.values()) == pytest.approx((numbers / numbers.sum()).tolist())


def test_tasks_of_the_same_coefficients_are_alike(learner):
    rows = values(il.charts.task_similarity(learner), "task", "beside", "similarity")
    similar = {(row["task"], row["beside"]): row["similarity"] for row in rows}
    assert len(similar) == 25
    assert similar["c", "c again"] == pytest.approx(1)
    assert similar["a", "b"] == pytest.approx(0)
    assert all(similar[a, b] == pytest.approx(similar[b, a]) for a, b in similar)
    joins = {row["join"] for row in values(il.charts.task_similarity(learner), "join", "distance")}
    assert len(joins) == 4  # of five tasks


def test_sparsity_and_pictures_show_the_masks(learner):
    rows = values(il.charts.layer_sparsity(learner), "x", "y", "value")
    assert len(rows) == 6
    mask = learner.bank_.mask("a")
    for layer in learner.backbone.layers:
        shown = next(row for row in rows if (row["x"], row["y"]) == (layer.name, "a"))
        assert shown["value"] == pytest.approx(1 - float(mask[layer.name].float().mean()))
        drawn = values(
            il.charts.mask_picture(learner.bank_, "a", layer.name), "unit", "input", "kept"
        )
        kept = np.zeros(tuple(mask[layer.name].shape), dtype=bool)
        for row in drawn:
            kept[row["unit"], row["input"]] = row["kept"]
        assert np.array_equal(kept, mask[layer.name].numpy())


def test_a_mask_alone_is_drawn_as_one_of_a_bank_is(learner):
    mask = learner.bank_.mask("a")
    layer = learner.backbone.layers[1].name
    for draw in (il.charts.mask_picture, il.charts.input_picture):
        of_bank, alone = values(draw(learner, "a"), "kept"), values(draw(mask), "kept")
        assert alone
        assert alone == of_bank
    found = il.masks.TrainedMask(mask, {}, {}, None)
    rows = values(il.charts.mask_picture(found, layer=layer), "kept")
    assert rows == values(il.charts.mask_picture(learner, "a", layer), "kept")
    shares = [row["value"] for row in values(il.charts.layer_sparsity(mask), "x", "y", "value")]
    assert shares == [pytest.approx(1 - float(o.float().mean())) for o in mask.values()]
    with pytest.raises(il.errors.InputError, match="say by name which of 2 masks to draw"):
        il.charts.mask_picture(learner)


def test_coefficients_keep_their_sign(learner):
    chart = il.charts.task_coefficients(learner, "c")
    rows = values(chart, "x", "y", "value")
    alphas = learner.coefficients_["c"].alpha
    assert len(rows) == 2 * len(alphas)
    for layer, alpha in zip(learner.backbone.layers, alphas, strict=True):
        for mask, numbers in zip(learner.bank_.names, alpha, strict=True):
            shown = next(row for row in rows if (row["x"], row["y"]) == (layer.name, mask))
            assert shown["value"] == pytest.approx(float(numbers.mean()), abs=1e-6)


def test_pictures_are_written(learner, tmp_path):
    for number, chart in enumerate(
        (il.charts.task_similarity(learner), il.charts.mask_picture(learner.bank_, "b"))
    ):
        chart.save(tmp_path / f"{number}.svg")
        assert (tmp_path / f"{number}.svg").read_text().startswith("<svg")


def test_what_cannot_be_drawn_is_a_line(learner):
    empty = quick_learner(lenet(4))
    refused("no task combines masks", il.charts.mask_usage, empty)
    refused("the bank holds no mask", il.charts.layer_sparsity, empty)
    refused("similarity compares two tasks or more", il.charts.task_similarity, learner, ["a"])
    refused("layer must be one of 0.weight", il.charts.mask_picture, learner.bank_, "a", "9")
    with pytest.raises(il.UnknownTaskError):
        il.charts.mask_picture(learner.bank_, "z")
    with pytest.raises(il.UnknownTaskError):
        il.charts.mask_usage(learner, ["z"])
    weights = quick_learner(lenet(4), granularity="weight", precision="coded").learn_task(
        "a", blobs()
    )
    refused("no task combines masks", il.charts.mask_usage, weights)


def test_methods_with_a_bank_are_drawn_and_others_are_a_line():
    supsup = il.SupSup(lenet(4), progress=False, sparsity=0.7)
    supsup.learn_task("a", blobs(0))
    assert il.charts.mask_picture(supsup, "a")
    assert il.charts.layer_sparsity(supsup)
    refused("an ImpressLearner; got SupSup", il.charts.mask_usage, supsup)
    refused("an ImpressLearner; got SupSup", il.charts.write_page, supsup, "page.html")
    refused(
        "masks must be a mask, a MaskBank, or have one; got dict", il.charts.mask_picture, {}, "a"
    )


def test_a_picture_of_the_inputs_counts_the_weights_kept(learner):
    bank = learner.bank_
    ones = bank.mask("a")[bank.layers[0].name].sum(dim=0)
    drawn = il.charts.input_picture(learner, "a", shape=(2, len(ones) // 2))
    seen = {(row["row"], row["column"]): row["kept"] for row in values(drawn, "row", "kept")}
    assert [seen[divmod(place, len(ones) // 2)] for place in range(len(ones))] == ones.tolist()
    for shape in ((len(ones),), (3, len(ones)), (0, 0)):
        refused("give shape=", il.charts.input_picture, learner, "a", shape)
    convolution = il.create_backbone("resnet18", width=4, num_classes=3)
    bank = il.random_bank(convolution.layers, 1, sparsity=0.5, seed=0)
    assert len(values(il.charts.input_picture(bank, bank.names[0]), "row", "kept")) == 9


def test_a_page_shows_tasks_and_charts(learner, tmp_path, monkeypatch):
    monkeypatch.setattr(il.charts, "PICTURES", 1)
    page = il.charts.write_page(learner, tmp_path / "page.html", title="Shops & co")
    text = page.read_text("utf-8")
    for words in ("Shops &amp; co", "tasks: 5, ", "masks: 2"):
        assert words in text
    assert re.findall(r'<img alt="([^":]*)', text) == [
        "Impressions that tasks use",
        "Cosine similarity of the coefficients of tasks, and the dendrogram of their distances",
        "Sparsity by layer",
        "Mask a in 0.weight",
    ]
    for name in learner.tasks_:
        assert f"<td>{name}</td>" in text
    monkeypatch.setattr(il.charts, "DRAWN_TASKS", 2)
    monkeypatch.setattr(il.charts, "LISTED_TASKS", 3)
    text = il.charts.write_page(learner, page).read_text("utf-8")
    assert "The first 2 of 3 tasks." in text
    assert "The first 2 of 5 tasks." in text
    assert "and 2 more" in text
    refused("there is no folder", il.charts.write_page, learner, tmp_path / "no" / "page.html")


def test_pages_of_learners_without_masks_or_tasks(tmp_path):
    empty = il.charts.write_page(quick_learner(lenet(4)), tmp_path / "empty.html")
    assert "no task as yet" in empty.read_text("utf-8")
    weights = quick_learner(lenet(4), granularity="weight", precision="coded").learn_task(
        "a", blobs(0)
    )
    assert "<td>a</td>" in il.charts.write_page(weights, tmp_path / "w.html").read_text("utf-8")
    one = quick_learner(lenet(4)).learn_basis("a", blobs(0))
    assert "Sparsity by layer" in il.charts.write_page(one, tmp_path / "one.html").read_text(
        "utf-8"
    )
