import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn import create_backbone
from impresslearn.errors import TrainingError
from impresslearn.masks.edge_popup import RULES, SAMPLE_SIZE, Popup, top_mask
from impresslearn.masks.sparsity import ones_per_layer


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


# What MultitaskMaskConv and its cross-entropy gave in RAIVNLab/supsup at 6a318784, sparsity 0.25.
AUTHORS_GRADIENTS = """
    -0.0413 -0.2133  0.0815 -0.2936  0.0913  0.1433 -0.1872 -0.0536  0.2710 -0.0392
    -0.1457  0.1008 -0.0501 -0.1215  0.2055  0.0437 -0.1269 -0.0851  0.1441 -0.0749"""


def test_a_layer_of_supsups_authors():
    place = torch.arange(20.0).reshape(4, 5)
    scores = ((place * 7 % 20 - 9.3) / 10).requires_grad_()
    (constant,) = create_backbone("linear", 4, in_features=5, gain=1).weights.values()
    weight = constant.abs() * torch.where(place % 3 == 0, -1, 1)
    inputs = (torch.arange(30.0).reshape(6, 5) * 2 % 7 - 3) / 2
    logits = inputs @ Popup.apply(scores, weight, 5, "magnitude").T
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 3, 0, 1]))
    loss.backward()
    assert top_mask(scores, 5).flatten().nonzero().flatten().tolist() == [0, 3, 11, 14, 17]
    assert float(loss.detach()) == pytest.approx(1.79236221, rel=1e-6)
    expected = torch.tensor([float(each) for each in AUTHORS_GRADIENTS.split()])
    torch.testing.assert_close(scores.grad.flatten(), expected, atol=6e-5, rtol=0)
    ones = ones_per_layer(create_backbone().layers, 1 - 24244 / 266200, "erdos_renyi")
    assert ones == (17344, 6400, 500)  # with er_sparsity and sparsity 16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", RULES)
def test_a_gpu_selects_the_same(rule):
    scores = (torch.randn(30, 40, generator=torch.Generator().manual_seed(0)) * 4).round()
    for ones in (0, 1, 500, 1200):
        mask = top_mask(scores.cuda(), ones, rule).cpu()
        assert torch.equal(mask, oracle(scores, ones, rule))
