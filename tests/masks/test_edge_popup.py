import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.errors import TrainingError
from impresslearn.masks.edge_popup import RULES, SAMPLE_SIZE, Popup, top_mask


def oracle(scores, ones, rule):
    """The same mask from a stable sort."""
    values = scores.abs() if rule == "magnitude" else scores
    order = torch.sort(values.flatten(), descending=True, stable=True).indices
    mask = torch.zeros(scores.numel(), dtype=torch.bool)
    mask[order[:ones]] = True
    return mask.reshape(scores.shape)


VALUES = st.one_of(
    st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0, float("inf"), -float("inf")]),
    st.floats(-3, 3, width=32),
)


@given(
    values=st.lists(VALUES, min_size=2, max_size=40),
    share=st.floats(0, 1),
    rule=st.sampled_from(RULES),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16]),
)
@settings(max_examples=300, deadline=None)
def test_the_mask_is_that_of_a_stable_sort(values, share, rule, dtype):
    """Among equal scores the earlier position wins: that of the shape, not of the memory."""
    scores = torch.tensor(values[: len(values) // 2 * 2]).to(dtype).reshape(-1, 2).T
    ones = round(share * scores.numel())
    mask = top_mask(scores, ones, rule)
    assert mask.dtype == torch.bool
    assert int(mask.sum()) == ones
    assert torch.equal(mask, oracle(scores, ones, rule))


@given(
    seed=st.integers(0, 99),
    size=st.integers(1, 60_000),
    share=st.floats(0, 1),
    levels=st.sampled_from([3, 50, 10**6]),
    misleading=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_large_layers_have_the_same_masks(seed, size, share, levels, misleading):
    """Also where an even sample of the scores is not like the rest of them."""
    scores = torch.randint(levels, (size,), generator=torch.Generator().manual_seed(seed)).float()
    if misleading:
        scores[:: max(1, size // SAMPLE_SIZE)] = 1
    ones = round(share * size)
    assert torch.equal(top_mask(scores, ones, "score"), oracle(scores, ones, "score"))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize(("size", "place"), [(10, 0), (10, 9), (50_000, 57)])
def test_nan_scores_are_refused(size, place, share, rule):
    scores = torch.randn(size, generator=torch.Generator().manual_seed(1))
    scores[place] = float("nan")
    with pytest.raises(TrainingError, match="became NaN; lower the learning rate"):
        top_mask(scores, int(share * size), rule)


@pytest.mark.parametrize("levels", [1, 1000], ids=["ties", "no ties"])
@pytest.mark.parametrize("rule", RULES)
def test_popup_masks_forward_and_passes_straight_through_backward(rule, levels):
    generator = torch.Generator().manual_seed(2)
    scores = (torch.randn(4, 3, 2, generator=generator) * levels).round().requires_grad_()
    weight, upstream = torch.randn((2, 4, 3, 2), generator=generator)
    weight.requires_grad_()
    effective = Popup.apply(scores, weight, 9, rule)
    assert torch.equal(effective, weight * oracle(scores.detach(), 9, rule))
    effective.backward(upstream)
    # Scores of weights that are masked now get a gradient too: that is how they come back.
    sign = scores.detach().sign() if rule == "magnitude" else 1
    torch.testing.assert_close(scores.grad, upstream * weight.detach() * sign)
    assert weight.grad is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", RULES)
def test_a_gpu_selects_the_same(rule):
    scores = (torch.randn(30, 40, generator=torch.Generator().manual_seed(0)) * 4).round()
    for ones in (0, 1, 500, 1200):
        mask = top_mask(scores.cuda(), ones, rule).cpu()
        assert torch.equal(mask, oracle(scores, ones, rule))
