"""A parametrisation from outside the package: one class and one registration."""

from dataclasses import dataclass

import pytest
import torch

import impresslearn as il
from impresslearn.coefficients import Parametrisation, Start, TensorLayout, register_parametrisation
from toys import blobs, quick_learner, refused


@dataclass(frozen=True)
class RowsAndColumns(Parametrisation):
    """W ⊙ (r cᵀ): a factor for each output unit and each input of a layer; no masks."""

    kind = "rows-and-columns"

    def layout(self, backbone, num_masks, num_classes):
        return [
            TensorLayout(f"{side}.{layer.name}", (size,), around_one=True)
            for layer in backbone.layers
            for side, size in (("row", layer.units), ("column", layer.fan_in))
        ]

    def start(self, backbone, bank, num_masks, coded):
        return [Start(1.0)] * (2 * len(backbone.layers))

    def weights(self, backbone, bank, tensors):
        changed = {}
        for number, layer in enumerate(backbone.layers):
            rows, columns = tensors[2 * number : 2 * number + 2]
            frozen = backbone.weights[layer.name]
            changed[layer.name] = frozen * torch.outer(rows, columns).reshape(frozen.shape)
        return changed


register_parametrisation(RowsAndColumns, {"rows-and-columns": lambda spec: RowsAndColumns()})


@pytest.mark.parametrize("precision", ["float32", "int8", "int4", "coded"])
def test_it_is_learned_rounded_stored_reloaded_and_exported(tmp_path, precision):
    learner = quick_learner(granularity="rows-and-columns", precision=precision)
    learner.learn_task("a", blobs(1))
    inputs, _ = blobs(1)
    assert learner.score(blobs(1), task="a") > 0.8
    numbers = sum(layer.units + layer.fan_in for layer in learner.backbone.layers)
    assert sum(map(torch.numel, learner.coefficients_["a"].tensors())) == numbers
    size = learner.tasks_["a"].breakdown["coefficients"]
    assert size == 4 * numbers if precision == "float32" else size < 2 * numbers
    logits = learner.logits(inputs, "a")
    learner.save(tmp_path / "a.impress")
    for again in (il.load(tmp_path / "a.impress"), il.open_store(tmp_path / "a.impress")):
        with again:
            assert torch.equal(again.logits(inputs, "a"), logits)
            assert again.tasks_["a"].bytes == learner.tasks_["a"].bytes
    torch.testing.assert_close(learner.export("a")(inputs), logits)
    learner.update_task("a", blobs(1))
    assert learner.tasks_["a"].version == 2


def test_another_parametrisation_of_the_same_kind_is_refused():
    @dataclass(frozen=True)
    class Other(RowsAndColumns):
        pass

    refused("registered already", register_parametrisation, Other)
    for _ in range(2):  # also a class that was registered before
        with pytest.raises(il.InputError, match="granularity 'layer' is registered already"):
            register_parametrisation(RowsAndColumns, {"layer": lambda spec: RowsAndColumns()})


def test_a_store_of_an_unregistered_kind_says_what_to_do(tmp_path, monkeypatch):
    from impresslearn.coefficients import parametrisation

    learner = quick_learner(granularity="rows-and-columns").learn_task("a", blobs(1))
    learner.save(tmp_path / "a.impress")
    monkeypatch.delitem(parametrisation._MAKERS, "rows-and-columns")
    refused("if it is your own, import its module", il.load, tmp_path / "a.impress")
    monkeypatch.delitem(parametrisation._KINDS, "rows-and-columns")
    with pytest.raises(il.StoreError, match="not registered; import what registers it$"):
        il.load(tmp_path / "a.impress", granularity="layer").predict(blobs(1)[0], "a")
