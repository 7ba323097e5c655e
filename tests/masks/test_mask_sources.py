import hashlib
import itertools
import math

import pytest
import torch

from impresslearn.data import TensorBatches
from impresslearn.errors import InputError
from impresslearn.kernels import pack
from impresslearn.masks import (
    PopupScores,
    add_random_masks,
    dense_weights,
    disjoint_bank,
    disjoint_mask,
    prune_mask,
    pruning,
    random_bank,
    random_mask,
    real_mask,
    signed_mask,
    train_mask,
)
from impresslearn.masks.bank import MaskBank
from impresslearn.masks.edge_popup import top_mask
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks import create_backbone
from impresslearn.networks.layers import MaskableLayer
from impresslearn.networks.prediction import TaskView
from impresslearn.optimisation.loop import Recipe

LAYERS = (MaskableLayer("conv.weight", (4, 2, 3, 3)), MaskableLayer("head.weight", (3, 20)))
FEW_STEPS = Recipe(optimizer="adam", lr=0.05, epochs=0, min_steps=40, batch_size=32)


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(mask, second[name]) for name, mask in first.items()
    )


@pytest.fixture
def backbone():
    return create_backbone("lenet_300_100", num_classes=2, seed=0, in_features=10, widths=[24])


@pytest.fixture
def clouds():
    """Two well separated clouds of points."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(128) % 2
    centre = torch.randn(10, generator=generator)
    inputs = torch.randn(128, 10, generator=generator) + 1.5 * centre * (2 * targets[:, None] - 1)
    return TensorBatches(inputs, targets)


@pytest.mark.parametrize("count", [1, 2, 7, 60, 100])
def test_disjoint_masks_share_every_weight_out(count):
    bank = disjoint_bank(LAYERS, count, seed=5)
    assert len(bank) == count
    for layer in LAYERS:
        masks = torch.stack([bank.mask(name)[layer.name] for name in bank.names])
        assert (masks.sum(dim=0) == 1).all()
        sizes = masks.flatten(1).sum(dim=1)
        assert int(sizes.max()) - int(sizes.min()) <= 1


def test_disjoint_masks_are_drawn_again_from_their_recipe():
    bank = disjoint_bank(LAYERS, 6, seed=5)
    for info in bank.infos:
        assert info.stored_as_seed
        drawn = disjoint_mask(LAYERS, info.recipe["disjoint"], 5, info.recipe["number"])
        assert same(drawn, bank.mask(info.name))
    assert not same(disjoint_mask(LAYERS, 6, 5, 0), disjoint_mask(LAYERS, 6, 4, 0))
    assert not same(disjoint_mask(LAYERS, 6, 5, 0), disjoint_mask(LAYERS, 7, 5, 0))


def test_disjoint_masks_are_the_same_on_every_machine():
    """Golden: files hold only their seeds."""
    shares = sum(
        number * disjoint_mask(LAYERS, 4, 0, number)["head.weight"].flatten().long()
        for number in range(4)
    )
    assert shares[:12].tolist() == [3, 1, 0, 1, 2, 0, 1, 2, 0, 3, 2, 3]


@pytest.mark.parametrize(("count", "number"), [(0, 0), (3, 3), (3, -1), (2**40, 1)])
def test_disjoint_masks_that_do_not_exist(count, number):
    with pytest.raises(InputError, match="there is no mask"):
        disjoint_mask(LAYERS, count, 0, number)


def test_an_empty_disjoint_bank_is_refused():
    with pytest.raises(InputError, match="at least 1, got 0"):
        disjoint_bank(LAYERS, 0)


def test_a_random_mask_has_exactly_the_ones_asked_for():
    for ones in ((1, 1), (30, 6), (71, 59), (72, 60), (0, 0)):
        for number in range(5):
            mask = random_mask(LAYERS, ones, seed=3, number=number)
            assert [int(each.sum()) for each in mask.values()] == list(ones)
            assert [tuple(each.shape) for each in mask.values()] == [x.shape for x in LAYERS]
            assert all(each.dtype == torch.bool for each in mask.values())


def test_the_seed_and_the_number_decide():
    torch.manual_seed(1)
    first = random_mask(LAYERS, (30, 20), seed=5, number=2)
    torch.manual_seed(2)
    assert same(random_mask(LAYERS, (30, 20), seed=5, number=2), first)
    for other in ({"seed": 5, "number": 3}, {"seed": 6, "number": 2}, {"seed": 2, "number": 5}):
        assert not same(random_mask(LAYERS, (30, 20), **other), first)
    twins = (MaskableLayer("a", (4, 20)), MaskableLayer("b", (4, 20)))
    drawn = random_mask(twins, (40, 40), seed=5)
    assert not torch.equal(drawn["a"], drawn["b"])


def test_a_random_mask_is_that_of_every_other_machine():
    # sha256 over pack(random_mask(LAYERS, (30, 20), seed=7, number=3)), layer after layer. Philox
    # 4x64-10 written out in plain Python, key (7, 0), counters (i, 0, 3, layer) from i = 1, gives
    # the same. Stores rebuild masks from seeds: a change here breaks every store.
    digest = hashlib.sha256()
    for layer, mask in zip(
        LAYERS, random_mask(LAYERS, (30, 20), seed=7, number=3).values(), strict=True
    ):
        digest.update(pack(mask.reshape(layer.units, layer.fan_in)).numpy().tobytes())
    assert digest.hexdigest() == "e70dbd1e7b42f802ff2306c7b2624de33b2adc2d88a4a7aacf5b52a80914d866"


def test_a_denser_random_mask_contains_the_sparser():
    sparse, dense = (random_mask(LAYERS, ones, seed=1) for ones in ((10, 10), (40, 30)))
    assert all((dense[name] >= mask).all() for name, mask in sparse.items())


def test_random_masks_are_uniform_and_independent():
    layers = (MaskableLayer("weight", (4, 10)),)
    count, ones, weights = 2000, 10, 40
    masks = torch.stack([random_mask(layers, (ones,), 0, n)["weight"] for n in range(count)])
    flat = masks.reshape(count, weights).double()
    # Five standard deviations of a binomial share, and of the mean of hypergeometric overlaps.
    share, spread = ones / weights, math.sqrt(0.25 * 0.75 / count)
    assert (flat.mean(0) - share).abs().max() < 5 * spread
    overlaps = (flat[0::2] * flat[1::2]).sum(1)
    deviation = math.sqrt(ones * share * (1 - share) * (weights - ones) / (weights - 1))
    assert overlaps.mean().item() == pytest.approx(
        ones * share, abs=5 * deviation / math.sqrt(count / 2)
    )
    assert overlaps.std().item() == pytest.approx(deviation, rel=0.15)


def test_a_random_bank_is_a_sequence_that_can_be_continued():
    whole = random_bank(LAYERS, 7, sparsity=0.8, seed=4)
    assert whole.names == tuple(f"random-{number}" for number in range(7))
    parts = random_bank(LAYERS, 3, sparsity=0.8, seed=4)
    assert add_random_masks(parts, 4, sparsity=0.8, seed=4) is parts
    assert parts.infos == whole.infos
    for name in whole.names:
        assert same(parts.mask(name), whole.mask(name))


@pytest.mark.parametrize("allocation", ["uniform", "erdos_renyi"])
def test_a_random_mask_is_rebuilt_from_its_recipe(allocation):
    bank = random_bank(LAYERS, 4, sparsity=0.7, allocation=allocation, seed=11)
    for info in bank.infos:
        assert info.stored_as_seed
        recipe = info.recipe
        ones = ones_per_layer(LAYERS, recipe["sparsity"], recipe["allocation"])
        assert info.ones == ones
        again = random_mask(LAYERS, ones, recipe["seed"], recipe["number"])
        assert same(again, bank.mask(info.name))


def test_prefixes_count_for_themselves():
    bank = MaskBank(LAYERS)
    mask = random_mask(LAYERS, (30, 20), 99)
    bank.append("random-of-mine", mask)
    add_random_masks(bank, 2, prefix="random-a")
    add_random_masks(bank, 1, prefix="random")
    add_random_masks(bank, 1, prefix="random-a")
    assert bank.names == ("random-of-mine", "random-a-0", "random-a-1", "random-0", "random-a-2")


def test_settings_that_draw_nothing():
    for count in (0, -2):
        with pytest.raises(InputError, match=f"at least 1, got {count}"):
            random_bank(LAYERS, count)
    bank = MaskBank(LAYERS)
    with pytest.raises(InputError, match=r"did you mean 0.95\?"):
        add_random_masks(bank, 2, sparsity=95)
    assert len(bank) == 0


def test_popup_scores_mask_the_weights(backbone):
    frozen = backbone.weights
    scores = PopupScores.create(backbone.layers, (50, 10), seed=2)
    masks, weights = scores.masks(), scores.weights(frozen)
    assert [int(mask.sum()) for mask in masks.values()] == [50, 10]
    for layer, tensor in zip(scores.layers, scores.tensors, strict=True):
        assert torch.equal(weights[layer.name], frozen[layer.name] * masks[layer.name])
        assert torch.equal(masks[layer.name], top_mask(tensor, int(masks[layer.name].sum())))
    sum(weight.sum() for weight in weights.values()).backward()
    for layer, tensor in zip(scores.layers, scores.tensors, strict=True):
        assert torch.equal(tensor.grad, frozen[layer.name])
    again = PopupScores.create(backbone.layers, (50, 10), seed=2)
    other = PopupScores.create(backbone.layers, (50, 10), seed=3)
    assert same(again.masks(), masks)
    assert not same(other.masks(), masks)


@pytest.mark.parametrize("rule", ["score", "magnitude"])
def test_a_trained_mask_solves_its_task_on_the_frozen_network(backbone, clouds, rule):
    frozen = {name: weight.clone() for name, weight in backbone.weights.items()}
    trained = train_mask(backbone, clouds, 2, (60, 12), FEW_STEPS, seed=1, rule=rule)
    assert [int(mask.sum()) for mask in trained.mask.values()] == [60, 12]
    for name, scores in trained.scores.items():
        assert torch.equal(
            trained.mask[name], top_mask(scores, int(trained.mask[name].sum()), rule)
        )
        assert torch.equal(backbone.weights[name], frozen[name])
    view = TaskView({name: frozen[name] * mask for name, mask in trained.mask.items()}, None, 2)
    assert view.accuracy(backbone, clouds) > 0.95
    assert trained.fit.steps == 40
    again = train_mask(backbone, clouds, 2, (60, 12), FEW_STEPS, seed=1, rule=rule)
    other = train_mask(backbone, clouds, 2, (60, 12), FEW_STEPS, seed=2, rule=rule)
    assert same(again.mask, trained.mask)
    assert not same(other.mask, trained.mask)


def test_pruning_keeps_exactly_the_ones_asked_for(backbone, clouds):
    frozen = {name: weight.clone() for name, weight in backbone.weights.items()}
    for ones, rounds in (((60, 12), 4), ((1, 1), 3), ((240, 48), 2), ((61, 11), 1)):
        mask = prune_mask(backbone, clouds, 2, ones, rounds, FEW_STEPS)
        assert [int(each.sum()) for each in mask.values()] == list(ones)
    assert all(torch.equal(backbone.weights[name], frozen[name]) for name in frozen)
    assert same(mask, prune_mask(backbone, clouds, 2, (61, 11), 1, FEW_STEPS))


def test_survivors_of_a_round_are_survivors_of_the_one_before(backbone, clouds, monkeypatch):
    train, seen = pruning._train_masked, []

    def spy(backbone, source, num_classes, mask, *rest):
        seen.append({name: each.clone() for name, each in mask.items()})
        trained = train(backbone, source, num_classes, mask, *rest)
        for name, weight in trained.items():
            weight[~mask[name]] = 100.0
            if len(seen) > 1:
                weight[mask[name]] = 0.0  # a tie with what was pruned, if that counted as zero
        return trained

    monkeypatch.setattr(pruning, "_train_masked", spy)
    last = prune_mask(backbone, clouds, 2, (15, 3), 4, FEW_STEPS)
    chain = [*seen, last]
    assert all(each.all() for each in chain[0].values())
    for before, after in itertools.pairwise(chain):
        for name, mask in after.items():
            assert (before[name] >= mask).all()
    # Each round keeps the same share: 240 to 15 in four rounds of a half.
    sizes = [int(next(iter(each.values())).sum()) for each in chain]
    assert sizes == [240, 120, 60, 30, 15]


def test_pruning_keeps_the_largest_trained_weights(backbone, clouds):
    nothing = Recipe(epochs=0, min_steps=0)  # no training: the first weights decide
    mask = prune_mask(backbone, clouds, 2, (50, 10), 1, nothing)
    for name, weight in backbone.weights.items():
        assert weight[mask[name]].abs().min() >= weight[~mask[name]].abs().max()


def test_pruning_needs_a_round(backbone, clouds):
    with pytest.raises(InputError, match="at least one round, got 0"):
        prune_mask(backbone, clouds, 2, (60, 12), 0)


def test_signed_masks():
    mask = random_mask(LAYERS, (36, 30), 0)
    signed = signed_mask(mask, seed=1)
    for name, values in signed.items():
        assert torch.equal(values != 0, mask[name])
        assert set(values.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert same(signed_mask(mask, seed=1), signed)
    assert not same(signed_mask(mask, seed=2), signed)


def test_real_masks_are_scores_of_mean_magnitude_one():
    mask = random_mask(LAYERS, (36, 30), 0)
    scores = {layer.name: torch.randn(layer.shape) for layer in LAYERS}
    for name, values in real_mask(mask, scores).items():
        assert torch.equal(values != 0, mask[name])
        assert values[mask[name]].abs().mean().item() == pytest.approx(1, rel=1e-5)
        ratio = values[mask[name]] / scores[name][mask[name]]
        torch.testing.assert_close(ratio, ratio[0].expand_as(ratio))
    with pytest.raises(InputError, match=r"scores kept in conv.weight are all zero"):
        real_mask(mask, {name: torch.zeros_like(each) for name, each in scores.items()})


def test_dense_masks_mix_as_packed_ones_do():
    masks = [random_mask(LAYERS, (36, 30), 0, number) for number in range(3)]
    weights = {layer.name: torch.randn(layer.shape) for layer in LAYERS}
    alphas = {layer.name: torch.randn(3) for layer in LAYERS}
    floats = [{name: each.float() for name, each in mask.items()} for mask in masks]
    for name, mixed in dense_weights(floats, alphas, weights).items():
        total = sum(alphas[name][t] * masks[t][name] for t in range(3))
        torch.testing.assert_close(mixed, weights[name] * total)
