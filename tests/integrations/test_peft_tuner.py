"""The tuner for PEFT, on small transformers with random weights; skipped where PEFT is missing."""

import json
from importlib import import_module

import pytest
import safetensors.torch
import torch
from torch.nn.functional import cross_entropy

from impresslearn.coefficients.quantisation import Grid, TensorLayout, encode_tensors
from impresslearn.errors import MissingDependencyError
from impresslearn.kernels import unpack
from impresslearn.networks.layers import MaskableLayer
from impresslearn.streams.torchvision import import_extra
from models import Tied, seeded
from toys import ConvNet, pictures, refused, torch_default

try:
    peft = import_extra("peft", "PEFT")
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)
transformers = import_module("transformers")
integration = import_module("impresslearn.integrations.peft")
PeftModel, get_peft_model = peft.PeftModel, peft.get_peft_model
ImpressConfig, ImpressLayer = integration.ImpressConfig, integration.ImpressLayer

SIZES = {
    "vocab_size": 32, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16,
    "num_labels": 3, "pad_token_id": 0,
}  # fmt: skip
LINEAR = 7 * 2 + 1  # layers of the network, its head included


def base():
    """A transformer of two layers with the same random weights each time."""
    network = transformers.LlamaConfig(**SIZES)
    return seeded(lambda: transformers.LlamaForSequenceClassification(network)).eval()


def config(**settings):
    return ImpressConfig(**{"num_masks": 4, "target_modules": "all-linear", **settings})


def tuned(seed=None, model=None, name="default", **settings):
    """An adapted network; seed: of coefficients in place of those that change nothing."""
    model = get_peft_model(model or base(), config(**settings), adapter_name=name).eval()
    return model if seed is None else coefficients_from(seed, model, name)


def coefficients_from(seed, model, name):
    generator = torch.Generator().manual_seed(seed)
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith(f"impress_alpha.{name}"):
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def batch(seed=0, count=24):
    """Token ids (n, 6), and labels: which third of the vocabulary the last one is of."""
    ids = torch.randint(1, 31, (count, 6), generator=torch.Generator().manual_seed(seed))
    return ids, (ids[:, -1] - 1) // 10


@torch.no_grad()
def logits(model, **settings):
    return model(input_ids=batch()[0], **settings).logits


def layers(model):
    return {name: each for name, each in model.named_modules() if isinstance(each, ImpressLayer)}


def frozen(model):
    """The weights of the network without what the adapters have, copied."""
    return {
        name.replace(".base_layer", ""): each.clone()
        for name, each in model.state_dict().items()
        if "impress_" not in name and "modules_to_save" not in name
    }


def train(model, steps=40, lr=0.05):
    """The losses of the first and the last step."""
    ids, labels = batch()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=lr)
    losses = []
    for _ in range(steps):
        loss = cross_entropy(model(input_ids=ids).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


@pytest.mark.parametrize(("granularity", "share"), [("layer", 0.9), ("unit", 0.5)])
def test_coefficients_alone_are_trained_and_the_loss_falls(granularity, share):
    model = tuned(granularity=granularity)
    before = frozen(model)
    first, last = train(model)
    assert last < share * first
    after = frozen(model)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], each) for name, each in before.items())
    names = [name for name, each in model.named_parameters() if each.requires_grad]
    assert len(names) == LINEAR
    assert all(name.endswith(".impress_alpha.default") for name in names)


def test_a_new_adapter_and_a_disabled_one_are_the_network_bit_for_bit():
    wanted = logits(base())
    model = tuned()
    assert torch.equal(logits(model), wanted)
    coefficients_from(1, model, "default")
    assert not torch.allclose(logits(model), wanted)
    with model.disable_adapter():
        assert torch.equal(logits(model), wanted)
    assert torch.equal(logits(model.unload()), wanted)


def test_the_change_is_that_of_the_formula():
    model = tuned(seed=1, granularity="unit")
    layer = layers(model)["base_model.model.model.layers.1.mlp.down_proj"]
    alpha, weight = layer.impress_alpha["default"], layer.base_layer.weight
    masks = unpack(layer.impress_bits_4_0, weight.shape[1])
    assert masks.shape == (4, *weight.shape)
    assert torch.equal(masks.sum(0), torch.ones(weight.shape))  # each weight in one of them
    wanted = weight * (masks * alpha[:, :, None]).sum(0)
    assert torch.allclose(layer.get_delta_weight("default"), wanted, atol=1e-7)
    inputs = torch.randn(5, 40)
    assert torch.allclose(layer(inputs), inputs @ (weight + wanted).T, atol=1e-5)


def test_what_is_saved_are_coefficients_and_they_load(tmp_path):
    model = tuned(seed=1)
    state = peft.get_peft_model_state_dict(model)
    assert {tuple(each.shape) for each in state.values()} == {(4,)}
    assert {name.rpartition(".")[2] for name in state} == {"impress_alpha"}
    model.save_pretrained(tmp_path)
    saved = safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
    assert sum(tensor.nbytes for tensor in saved.values()) == 4 * 4 * LINEAR
    again = PeftModel.from_pretrained(base(), tmp_path).eval()
    assert torch.equal(logits(again), logits(model))
    assert not any(each.requires_grad for each in again.parameters())
    assert train(PeftModel.from_pretrained(base(), tmp_path, is_trainable=True), 1)


@pytest.mark.parametrize("granularity", ["layer", "unit"])
def test_a_coded_adapter_costs_what_a_store_would_keep(tmp_path, granularity):
    model = tuned(precision="coded", granularity=granularity, num_masks=64)
    assert torch.equal(logits(model), logits(base()))
    first, last = train(model)
    assert last < 0.9 * first
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(base(), tmp_path).eval()
    assert torch.equal(logits(again), logits(model.eval()))
    light = PeftModel.from_pretrained(base(), tmp_path, low_cpu_mem_usage=True)
    assert torch.equal(logits(light), logits(model))
    again.load_adapter(tmp_path, "other")
    again.set_adapter("other")
    for layer in layers(again).values():  # two adapters, one set of masks
        assert [name for name, _ in layer.named_buffers()] == ["impress_bits_64_0"]
    again.save_pretrained(tmp_path / "more", selected_adapters=["other"])
    written = (tmp_path / "adapter_model.safetensors").read_bytes()
    assert (tmp_path / "more" / "other" / "adapter_model.safetensors").read_bytes() == written

    alphas = [layer.impress_alpha["default"] for layer in layers(model).values()]
    values, steps = zip(*map(integration.rounded, alphas), strict=True)
    grids = [Grid(float(step), 0.0) for step in steps]
    places = [TensorLayout(str(place), tuple(x.shape)) for place, x in enumerate(values)]
    stored = len(encode_tensors(values, places, "coded", grids))
    header = len(written) - safetensors.torch.load(written).popitem()[1].numel()
    assert header < 190
    assert len(written) - header == stored + 4  # a checksum


def test_a_head_is_kept_and_beside_a_coded_adapter_as_integers(tmp_path):
    plain = tuned(task_type="SEQ_CLS")  # PEFT adds the classifier by itself
    assert train(plain)[1] < 0.1
    plain.save_pretrained(tmp_path / "plain")
    again = PeftModel.from_pretrained(base(), tmp_path / "plain").eval()
    assert torch.equal(logits(again), logits(plain))
    model = tuned(precision="coded", modules_to_save=["score"])
    train(model)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(base(), tmp_path).eval()
    head, exact = (each.base_model.model.score.modules_to_save.default for each in (again, model))
    step = exact.weight.abs().max() / 127
    assert (head.weight - exact.weight).square().mean().sqrt() < step
    saved = safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.uint8}
    assert sum(tensor.nbytes for tensor in saved.values()) < 3 * 32 + 4 * LINEAR + 20

    saved[next(name for name in saved if name.endswith("impress_alpha"))][9] += 1
    safetensors.torch.save_file(saved, tmp_path / "adapter_model.safetensors")
    refused("the saved adapter is damaged", PeftModel.from_pretrained, base(), tmp_path)


def test_coded_and_float_files_load_into_adapters_of_either_precision(tmp_path):
    floats, coded = tuned(seed=1), tuned(seed=2, precision="coded")
    for name, model in (("float", floats), ("coded", coded)):
        model.save_pretrained(tmp_path / name)
        for other in ({}, {"precision": "coded"}):
            again = tuned(**other)
            again.load_adapter(tmp_path / name, "default")
            rounds = "precision" in other and name == "float"
            assert torch.allclose(logits(again), logits(model), atol=0.1 if rounds else 1e-6)
    for settings in ({"seed": 3}, {"granularity": "unit"}):
        other = get_peft_model(base(), config(**settings))
        refused("or was made with other", other.load_adapter, tmp_path / "coded", "default")
    # An adapter that diverged does not stop others, and is loaded anew.
    next(iter(layers(coded).values())).impress_alpha["default"].data.fill_(float("nan"))
    refused("NaN", coded.save_pretrained, tmp_path / "never")
    coded.load_adapter(tmp_path / "coded", "default")
    assert logits(coded).isfinite().all()
    injected = peft.inject_adapter_in_model(config(), base())
    state = safetensors.torch.load_file(tmp_path / "coded" / "adapter_model.safetensors")
    peft.set_peft_model_state_dict(injected, state)
    assert torch.allclose(logits(injected), logits(coded), atol=1e-6)
    # The state dict of the whole keeps everything.
    wanted = {name: each.clone() for name, each in coded.state_dict().items()}
    coded.load_state_dict(wanted, strict=True)
    assert all(torch.equal(each, wanted[name]) for name, each in coded.state_dict().items())


def test_merging_keeps_the_logits_and_unmerging_the_weights():
    model = tuned(seed=1)
    model.add_adapter("b", config())
    coefficients_from(2, model, "b")
    model.merge_adapter(["default"])
    with pytest.warns(UserWarning, match="now additionally merging b"):
        model.merge_adapter(["b"])
    both = logits(model)
    with model.disable_adapter():
        assert torch.equal(logits(model), logits(base()))
    model.base_model.set_adapter(["default", "b"])
    assert torch.allclose(logits(model), both, atol=1e-6)
    model.base_model.set_adapter("b")
    alone = logits(model)
    assert not torch.allclose(alone, both, atol=1e-3)
    plain = model.merge_and_unload(safe_merge=True)
    assert torch.allclose(logits(plain), alone, atol=1e-6)
    assert not layers(plain)


def test_gpt2_with_its_units_in_columns_in_half_precision_too(tmp_path):
    sizes = {"n_embd": 24, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 32}
    network = transformers.GPT2Config(num_labels=3, pad_token_id=0, **sizes)

    def gpt2():
        return seeded(lambda: transformers.GPT2ForSequenceClassification(network)).eval()

    model = tuned(seed=1, model=gpt2(), target_modules=None, granularity="unit")
    (layer,) = layers(model).values()
    assert layer.impress_alpha["default"].shape == (4, 72)  # c_attn: what PEFT's LoRA takes too
    assert layer.get_delta_weight("default").shape == layer.base_layer.weight.shape == (24, 72)
    own = logits(model)
    assert not torch.allclose(own, logits(gpt2()))
    model.save_pretrained(tmp_path)
    for light in (False, True):  # coefficients are not rounded as the weights are
        half = PeftModel.from_pretrained(gpt2().bfloat16(), tmp_path, low_cpu_mem_usage=light)
        (other,) = layers(half).values()
        assert torch.equal(other.impress_alpha["default"], layer.impress_alpha["default"])
    assert torch.allclose(logits(half).float(), own, atol=0.05)
    assert torch.allclose(logits(model.merge_and_unload()), own, atol=1e-6)


def test_convolutions_are_adapted(tmp_path):
    inputs = pictures()[0]
    model = get_peft_model(ConvNet(), config(target_modules=["body.0", "head"], granularity="unit"))
    plain = ConvNet().eval()(inputs)
    assert torch.equal(model.eval()(inputs), plain)
    coefficients_from(1, model, "default")
    assert not torch.allclose(model(inputs), plain)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(ConvNet(), tmp_path).eval()
    assert torch.equal(again(inputs), model(inputs))


def test_masks_of_another_network_or_seed_are_refused(tmp_path):
    tuned(seed=1).save_pretrained(tmp_path)
    file = tmp_path / "adapter_config.json"
    settings = json.loads(file.read_text())
    assert len(settings["masks_digest"]) == 64
    file.write_text(json.dumps(settings | {"seed": 1}))
    model = base()
    refused("masks that seed 1 draws .* not those", PeftModel.from_pretrained, model, tmp_path)
    assert not layers(model)
    assert torch.equal(logits(model), logits(base()))
    model = tuned(seed=5, name="first")
    file.write_text(json.dumps(settings | {"masks_digest": "0" * 64}))
    own = logits(model)
    refused("masks_digest=None", model.load_adapter, tmp_path, "b")
    assert list(model.peft_config) == ["first"]
    assert torch.equal(logits(model), own)


@pytest.mark.parametrize("default", ["float64", "bfloat16", "meta"])
def test_torchs_defaults_change_nothing(default, tmp_path):
    first, second = tuned(seed=1), base()
    expected = logits(first)
    first.save_pretrained(tmp_path)
    with torch_default(default):
        again = PeftModel.from_pretrained(second, tmp_path).eval()
    assert torch.equal(logits(again), expected)


def test_masks_never_change():
    """Golden: saved adapters depend on the SHA-256 of masks."""
    digest = integration.draw(MaskableLayer("a.weight", (6, 20)), integration.MaskKey(3, 7))[1]
    assert digest.hex() == "de2156a03b995ef9ff6737459deb5d4e2a949e673b475536a33c620edafc65a6"


@pytest.mark.parametrize("target", [["a"], ["a", "b"]])
@torch.no_grad()
def test_layers_that_share_a_weight_are_merged_each_for_itself(target):
    ids = torch.arange(8)
    base, model = seeded(Tied), tuned(seed=0, model=seeded(Tied), target_modules=target)
    network, own = model.base_model.model, model(ids)
    shared = network.tokens.weight
    assert not torch.allclose(own, base(ids), atol=1e-3)
    for _ in range(2):
        model.merge_adapter(safe_merge=True)
        assert torch.allclose(model(ids), own, atol=1e-5)
        assert torch.equal(network.tokens.weight, base.a.weight)
        assert len(list(network.a.get_base_layer().parameters())) == 2  # none is kept twice
        model.unmerge_adapter()
        assert network.a.base_layer.weight is shared
        assert torch.equal(shared, base.a.weight)
        assert torch.equal(model(ids), own)
    model.merge_adapter()
    with model.disable_adapter():
        assert torch.equal(model(ids), base(ids))
    assert torch.allclose(model.merge_and_unload()(ids), own, atol=1e-5)
