"""The cache of effective weights: what was used last stays, sparse weights longest, all fits."""

import torch

from impresslearn.networks.weight_cache import WeightCache
from toys import same


def sparse(seed, size=1000, ones=20):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.zeros(size)
    weight[torch.randperm(size, generator=generator)[:ones]] = torch.randn(ones)
    return {"w": weight.view(10, -1), "b": torch.randn(5)}


def test_what_was_used_last_stays_and_fits():
    cache, made = WeightCache(limit=3 * 40), []

    def get(name, count=10):
        return cache.get(name, lambda: made.append(name) or {"w": torch.ones(count)})

    kept = get("a")
    assert get("a") is kept
    for name in "bcad":  # "b" is the one used longest ago
        get(name)
    assert made == [*"abcd"]
    for name in "acdb":
        get(name)
    assert made == [*"abcdb"]
    assert get("big", 1000) is not get("big", 1000)
    assert get("b") is get("b")
    empty = WeightCache(limit=0)
    assert empty.get("a", lambda: {"w": kept["w"]}) is not empty.get("a", lambda: {"w": kept["w"]})


def test_sparse_weights_are_packed_before_any_are_dropped():
    made, limit = [], 4 * 4020
    cache, weights = WeightCache(limit), {f"t{seed}": sparse(seed) for seed in range(40)}

    def get(name, **settings):
        return cache.get(name, lambda: made.append(name) or weights[name], **settings)

    for _ in range(3):
        for name, each in weights.items():
            found = get(name, displace=False)
            assert same(found, each)
            assert found["w"].shape == (10, 100)
        assert cache._bytes <= limit
    assert made == [*weights]
    assert sum(cache._kept[name] is weights[name] for name in weights) >= 2
    first = get("t0")  # used again by its name, it is whole again
    assert get("t0") is first
    assert cache._bytes == sum(
        sum(w.nbytes for w in each.values()) for each in cache._kept.values()
    )
    assert made == [*weights]


def test_inference_packs_dense_weights_of_others_never_nor_drops_them():
    dense = {name: {"w": torch.ones(10)} for name in "abc"}
    cache = WeightCache(3 * 40)
    for name, each in dense.items():
        cache.get(name, lambda each=each: each)
    assert cache.get("d", lambda: {"w": torch.ones(10)}, displace=False) is not None
    assert all(cache.get(name, dict) is each for name, each in dense.items())
