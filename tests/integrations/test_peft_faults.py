"""Adapters of the tuner for PEFT on tied weights, and loaded under a name in use."""

import warnings

import pytest
import safetensors.torch
import torch
from torch import nn

from impresslearn.errors import MissingDependencyError
from impresslearn.streams.torchvision import import_extra
from toys import refused

try:
    peft = import_extra("peft", "PEFT")
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)
from impresslearn.integrations.peft import ImpressConfig


class Tied(nn.Module):
    """Two layers and an embedding of one weight."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 8)
        self.a, self.b, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.a.weight = self.b.weight = self.embedding.weight

    def forward(self, ids):
        return self.out(self.b(self.a(self.embedding(ids)).relu()).relu())


def body():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def fresh(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind().eval()


def tuned(kind, target, seed=0):
    """An adapted network, with coefficients drawn from the seed as its masks are."""
    settings = ImpressConfig(num_masks=4, target_modules=target, seed=seed)
    model = peft.get_peft_model(fresh(kind), settings).eval()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for name, parameter in model.named_parameters():
            if "impress_alpha" in name:
                parameter.normal_()
    return model


@pytest.mark.parametrize("target", [["a"], ["a", "b"]])
@torch.no_grad()
def test_layers_that_share_a_weight_are_merged_each_for_itself(target):
    ids = torch.arange(8)
    base, model = fresh(Tied), tuned(Tied, target)
    network, own = model.base_model.model, model(ids)
    shared = network.embedding.weight
    assert not torch.allclose(own, base(ids), atol=1e-3)
    for _ in range(2):
        model.merge_adapter(safe_merge=True)
        assert torch.allclose(model(ids), own, atol=1e-5)
        assert torch.equal(network.embedding.weight, base.a.weight)
        assert len(list(network.a.get_base_layer().parameters())) == 2  # none is kept twice
        assert not network.a.get_base_layer().weight.requires_grad
        model.unmerge_adapter()
        assert network.a.base_layer.weight is network.b.get_parameter(
            "base_layer.weight" if "b" in target else "weight"
        )
        assert network.a.base_layer.weight is shared
        assert torch.equal(shared, base.a.weight)
        assert torch.equal(model(ids), own)
    model.merge_adapter()
    with model.disable_adapter():
        assert torch.equal(model(ids), base(ids))
    model.merge_adapter()
    model.double()
    model.unmerge_adapter()
    assert shared.dtype == torch.float64
    assert torch.equal(shared.float(), base.a.weight)
    assert torch.allclose(model.float().merge_and_unload()(ids), own, atol=1e-5)


def test_what_is_saved_while_merged_is_what_is_saved_otherwise(tmp_path):
    model = tuned(Tied, ["a", "b"])
    own = peft.get_peft_model_state_dict(model)
    model.merge_adapter()
    model.save_pretrained(tmp_path)
    kept = safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
    assert kept.keys() == own.keys()
    assert all(torch.equal(kept[name], each) for name, each in own.items())


@torch.no_grad()
def test_coefficients_of_other_masks_are_not_loaded_under_a_name_in_use(tmp_path):
    inputs = torch.randn(5, 8)
    first, other = (tuned(body, ["0"], seed) for seed in (0, 7))
    first.save_pretrained(tmp_path / "first")
    other.save_pretrained(tmp_path / "other")
    model = peft.PeftModel.from_pretrained(fresh(body), tmp_path / "first")
    line = "'default' has other masks .* under a name that is not in use"
    for light in (False, True):
        refused(line, model.load_adapter, tmp_path / "other", "default", low_cpu_mem_usage=light)
        assert torch.equal(model(inputs), first(inputs))  # nothing was loaded
    model.load_adapter(tmp_path / "other", "b")
    model.set_adapter("b")
    assert torch.equal(model(inputs), other(inputs))
    model.load_adapter(tmp_path / "other", "b")
    assert torch.equal(model(inputs), other(inputs))
    refused("'b' has other masks", model.load_adapter, tmp_path / "first", "b")


@torch.no_grad()
def test_coefficients_load_under_a_name_in_use_where_the_masks_are_equal(tmp_path):
    inputs, model = torch.randn(5, 8), tuned(body, ["0"])
    model.save_pretrained(tmp_path)
    own = model(inputs)
    model.base_model.model[0].impress_alpha["default"].zero_()
    assert not torch.allclose(model(inputs), own)
    model.load_adapter(tmp_path, "default")
    assert torch.equal(model(inputs), own)


@torch.no_grad()
def test_an_adapter_saved_without_a_digest_loads_without_a_warning(tmp_path):
    inputs, model = torch.randn(5, 8), tuned(body, ["0"])
    model.save_pretrained(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    kept = safetensors.torch.load_file(file)
    assert kept.pop("base_model.impress_masks").shape == (32,)
    safetensors.torch.save_file(kept, file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = peft.PeftModel.from_pretrained(fresh(body), tmp_path)
        again.load_adapter(tmp_path, "default")
    assert torch.equal(again(inputs), model(inputs))


def test_the_digest_of_a_deleted_adapter_is_not_saved():
    model = tuned(body, ["0"])
    model.add_adapter("b", ImpressConfig(num_masks=4, target_modules=["0"]))
    model.delete_adapter("default")
    model.set_adapter("b")
    state = peft.get_peft_model_state_dict(model, adapter_name="b")
    assert list(state) == ["base_model.model.0.impress_alpha", "base_model.impress_masks"]
