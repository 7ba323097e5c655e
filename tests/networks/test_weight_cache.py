"""The cache of effective weights: what was used last stays, all fits, and threads do not wait."""

import threading

import torch

from impresslearn.networks.weight_cache import WeightCache


def test_what_was_used_last_stays_and_fits():
    cache, made = WeightCache(limit=3 * 40), []

    def get(name, count=10, **settings):
        return cache.get(name, lambda: made.append(name) or {"w": torch.ones(count)}, **settings)

    weights = get("a")
    assert get("a") is weights
    for name in "bcad":  # "b" is the one used longest ago
        get(name)
    assert made == [*"abcd"]
    for name in "acdb":
        get(name)
    assert made == [*"abcdb"]
    assert get("big", 1000) is not get("big", 1000)
    for name in "acdb":
        get(name)
    assert get("b") is get("b")
    empty = WeightCache(limit=0)
    assert empty.get("a", lambda: {"w": weights["w"]}) is not empty.get("a", dict)


def test_going_through_all_tasks_drops_nobodys_weights():
    dense = {name: {"w": torch.ones(10)} for name in "abc"}
    cache = WeightCache(3 * 40)
    for name in "ab":
        cache.get(name, lambda name=name: dense[name])
    assert cache.get("c", lambda: dense["c"], evict_others=False) is dense["c"]
    assert cache.get("d", lambda: {"w": torch.ones(10)}, evict_others=False) is not None
    assert all(cache.get(name, dict) is weights for name, weights in dense.items())


def test_others_are_served_while_weights_are_mixed():
    cache, mixing, over = WeightCache(limit=1000), threading.Event(), threading.Event()
    quick = cache.get("quick", lambda: {"w": torch.zeros(2)})

    def mix():
        mixing.set()
        assert over.wait(5)
        return {"w": torch.ones(2)}

    results = []
    thread = threading.Thread(target=lambda: results.append(cache.get("slow", mix)))
    thread.start()
    mixing.wait()
    others = threading.Thread(target=lambda: results.append(cache.get("quick", dict)))
    others.start()
    others.join(2)
    served, ours = list(results), cache.get("slow", lambda: {"w": torch.zeros(3)})
    over.set()
    thread.join()
    assert len(served) == 1
    assert served[0] is quick
    assert results[1] is ours is cache.get("slow", dict)
