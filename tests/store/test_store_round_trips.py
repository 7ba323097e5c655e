"""What is saved comes back: bit by bit, for every kind of network, coefficient, label and norm."""

import pytest
import torch
from storekit import INPUTS, QUICKLY, digest, digests, small_learner, sql
from torch import nn

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.networks import Backbone, registry
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.store.tasks import label_map_bytes
from toys import FEATURES, ConvNet, blobs, few_labels, mlp, pictures, quick_learner, refused, resnet

IMAGES = pictures(9)[0][:5]


def both(learner, path, module=None, **how):
    """The learner as `load` and as `open_store` give it back."""
    learner.save(path, **how)
    yield il.load(path, module=module, progress=False)
    with il.open_store(path, module=module, progress=False) as bound:
        yield bound


def assert_same(one, other, inputs=INPUTS):
    assert list(one.tasks_) == list(other.tasks_)
    for name, info in one.tasks_.items():
        found = other.tasks_[name]
        assert (found, dict(found.history)) == (info, dict(info.history))
        assert one.tasks_.stored(name).profile == other.tasks_.stored(name).profile
        ours, theirs = ([x.logits(inputs, name), x.statistics_of(name)] for x in (one, other))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert one.bank_.infos == other.bank_.infos
    for layer in range(len(one.bank_.layers)):
        assert torch.equal(one.bank_.bits(layer), other.bank_.bits(layer))
    assert one.backbone.fingerprint() == other.backbone.fingerprint()
    for kept in ("norm", "pretrained", "spec"):
        assert getattr(one.backbone, kept) == getattr(other.backbone, kept)
    assert one.settings == other.settings


COLUMNS = """
    SELECT coalesce(length(m.bits), 0), coalesce(length(t.coefficients), 0),
           coalesce(length(t.statistics), 0), coalesce(length(t.profile), 0)
    FROM tasks AS t LEFT JOIN masks AS m ON m.name = t.mask WHERE t.name = ?
"""


def assert_counted(learner, path):
    """What a task is said to cost is what the store keeps for it."""
    with sql(path) as connection:
        for name, info in learner.tasks_.items():
            found = connection.execute(COLUMNS, [name]).fetchone()
            kept = zip(("mask", "coefficients", "statistics", "profile"), found, strict=True)
            assert info.breakdown == dict(kept) | {"labels": label_map_bytes(info.classes)}
            assert info.bytes == sum(info.breakdown.values())


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared", "group"])
@pytest.mark.parametrize(("weights", "precision"), [("stored", "int4"), ("seed", "coded")])
def test_every_norm_policy(tmp_path, norm, weights, precision):
    learner = quick_learner(resnet(norm), precision=precision, **QUICKLY)
    learner.learn_basis("a", pictures(0))
    learner.learn_task("b", pictures(1))
    assert (learner.tasks_["b"].breakdown["statistics"] > 0) == (norm == "per_task")
    first = learner.logits(IMAGES, "b")
    assert not learner.update_task("b", pictures(5)).logits(IMAGES, "b").equal(first)
    assert learner.restore_task("b", 1).logits(IMAGES, "b").equal(first)
    for back in both(learner, tmp_path / "a.impress", weights=weights):
        assert_same(learner, back, IMAGES)
        assert_counted(back, tmp_path / "a.impress")
        back.learn_task("c", pictures(2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: il.adapt(ConvNet().double(), skip=["head.weight"], num_classes=3),
        lambda: Backbone(ConvNet(), num_classes=3, norm="shared"),
        lambda: il.adapt(ConvNet().to(memory_format=torch.channels_last), num_classes=3),
    ],
)
def test_a_module_of_ones_own(tmp_path, make):
    learner, module = quick_learner(make(), **QUICKLY), ConvNet()
    learner.learn_basis("a", pictures(0)).learn_task("b", pictures(1))
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    for back in both(learner, tmp_path / "a.impress", module=module):
        assert_same(learner, back, IMAGES)
        assert back.backbone.head == learner.backbone.head
        back.learn_task("c", pictures(2))
    assert not any(parameter.any() for parameter in module.parameters())
    verify_store(tmp_path / "a.impress", module=module)


class WithBuffer(ConvNet):
    def __init__(self):
        super().__init__()
        self.register_buffer("extra", torch.ones(2))


@pytest.mark.parametrize(
    ("kept", "given", "words"),
    [(ConvNet, WithBuffer, "SHA-256"), (WithBuffer, ConvNet, "'extra' of")],
)
def test_a_wrong_module(tmp_path, kept, given, words):
    quick_learner(il.adapt(kept()), **QUICKLY).save(tmp_path / "a.impress")
    for verb in (il.load, il.open_store, verify_store):
        refused(words, verb, tmp_path / "a.impress", module=given(), error=il.StoreError)


def test_a_registered_backbone_of_the_user(tmp_path):
    @il.register_backbone("store_test_net")
    def build(num_classes, *, width=5, extra=None):
        return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, num_classes))

    backbone = il.create_backbone("store_test_net", 3, width=7, extra={"a": [1, 2]})
    learner = quick_learner(backbone, **QUICKLY).learn_basis("a", blobs(0))
    path = tmp_path / "a.impress"
    torch.rand(1)  # the biases, too, follow the seed of the network and not the global state
    for back in both(learner, path, weights="seed"):
        assert_same(learner, back)
    del registry._builders["store_test_net"]
    line = r"store_test_net; import what registers it \(il.register_backbone\), or"
    refused(line, il.load, path, error=il.StoreError)


def test_weights_from_a_seed_must_be_the_same(tmp_path, monkeypatch):
    path, learner, real = tmp_path / "a.impress", small_learner(), registry.fill_weights
    learner.save(path, weights="seed")
    assert path.stat().st_size < 20_000  # each table takes a page, so pages are small
    assert_same(learner, il.load(path))
    monkeypatch.setattr(registry, "fill_weights", lambda m, init, _, *more: real(m, init, 1, *more))
    for verb in (il.load, il.open_store):
        refused("SHA-256 differs", verb, path, error=il.StoreError)


def test_every_kind_of_label(tmp_path):
    inputs, places = blobs(0)
    learner = quick_learner(**QUICKLY).add_random_masks(2)
    kinds = [-5, 2**40, 7], ["ä", "日本", "a b\n"], [True, False, True], ["", " ", "'"]
    for number, labels in enumerate([*kinds, ["x" * 5000, "y", "z"]]):
        learner.learn_task(f"task {number}", (inputs, [labels[place] for place in places]))
    for back in both(learner, tmp_path / "a.impress"):
        assert_same(learner, back)
        for name in back.tasks_:
            found, expected = (each.predict(inputs, name) for each in (back, learner))
            assert (found.tolist(), found.dtype) == (expected.tolist(), expected.dtype)


def test_some_of_the_tasks(tmp_path):
    learner = small_learner()
    learner.learn_basis("late", blobs(4)).learn_task("last", blobs(5))
    path = tmp_path / "a.impress"
    for names, masks in ((["first", "basis-0"], 4), (["basis-0"], 1), (["last"], 5), ([], 5)):
        learner.save(path, tasks=[*names, *names], overwrite=True)
        back = il.load(path)
        assert digests(back) == {name: digest(learner, name) for name in names}
        assert len(back.bank_) == masks


def test_some_tasks_keep_the_projection_of_their_profiles(tmp_path):
    """It came after one of features under masks, which they do not need."""
    few = few_labels(mlp(520)).learn_task("few", blobs(0, count=30)).add_random_masks(1)
    few.learn_features(blobs(1)).learn_task("many", blobs(1, count=300))
    assert few._store.space.projection == 2
    few.save(tmp_path / "few.impress", tasks=["few"])
    back = il.load(tmp_path / "few.impress", module=few.backbone.module)
    assert back.infer_task(blobs(0)[0]).best == "few"


def test_masks_of_every_origin(tmp_path):
    """Also one that only claims to be random: it must not be drawn again."""
    learner = small_learner()
    bank = learner.bank_
    own = {each.name: torch.rand(each.shape) < 0.5 for each in bank.layers}
    for name, how in (("false", {"seed": 1, "number": 7}), ("bad", {"seed": -1, "number": "x"})):
        bank.adopt(*il.masks.bank.packed_mask(name, own, bank.layers, "random", how))
    learner.learn_task("over all", blobs(3))
    for back in both(learner, tmp_path / "a.impress"):
        assert_same(learner, back)
    bank.adopt(*il.masks.bank.packed_mask("odd", own, bank.layers, "given", {"when": object()}))
    refused("plain JSON values", learner.save, tmp_path / "b.impress")


@pytest.mark.parametrize(("head", "dtype"), [("shared", torch.float32), ("own", torch.bfloat16)])
def test_a_module_of_equal_tensors_that_computes_something_else_is_refused(tmp_path, head, dtype):
    def module(activation):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(FEATURES, 8), activation, nn.Linear(8, 3)).to(dtype)

    path = tmp_path / "a.impress"
    backbone = il.adapt(module(nn.ReLU()), input_shape=(FEATURES,), head=head)
    learner = quick_learner(backbone).add_random_masks(3).learn_task("a", blobs())
    learner.save(path)
    for other in (nn.Tanh(), nn.GELU(), nn.Identity()):
        line = "computes something else than the network of"
        refused(line, il.load, path, module=module(other), error=il.StoreError)
    again = il.load(path, module=module(nn.ReLU()).train())  # drawn anew, in another mode
    assert_same(learner, again, blobs()[0])


def test_a_task_of_infinite_statistics_is_refused_when_it_is_learned(monkeypatch):
    learner, begin = quick_learner(resnet("per_task"), **QUICKLY), TrainingPhase.begin

    def spoiled(*how):
        phase = begin(*how)
        next(iter(phase.statistics.values()))[0] = torch.inf
        return phase

    monkeypatch.setattr("impresslearn.networks.prediction.TrainingPhase.begin", spoiled)
    refused("", learner.learn_basis, "b", pictures(1), error=il.TrainingError)
    assert (list(learner.tasks_), learner.bank_.names) == ([], ())
