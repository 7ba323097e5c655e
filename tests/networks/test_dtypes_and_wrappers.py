"""Networks and stores name their dtype; wrappers around a module are taken off."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn.errors import InputError
from toys import FEATURES, QUICK, blobs, lenet, quick_learner

DTYPES = (torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture(params=DTYPES, ids=str)
def default_dtype(request):
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


def test_torchs_default_dtype_changes_nothing(default_dtype, tmp_path):
    inputs, labels = (
        values.float() if values.is_floating_point() else values for values in blobs(1)
    )
    torch.set_default_dtype(torch.float32)
    usual = quick_learner(lenet()).add_random_masks(4).learn_task("a", (inputs, labels))
    usual.save(tmp_path / "a.impress").save(tmp_path / "seed.impress", weights="seed")
    torch.set_default_dtype(default_dtype)
    learner = quick_learner(lenet()).add_random_masks(4).learn_task("a", (inputs, labels))
    logits = usual.logits(inputs, "a")
    assert torch.equal(learner.logits(inputs, "a"), logits)
    for name in ("a", "seed"):
        assert torch.equal(il.load(tmp_path / f"{name}.impress").logits(inputs, "a"), logits)
    assert torch.equal(learner.export("a")(inputs), usual.export("a")(inputs))
    learner.learn_basis("b", (inputs, labels))
    assert learner.infer_task(inputs[:8]).best in ("a", "b")


def test_a_store_that_was_saved_under_float64_is_read_elsewhere(tmp_path):
    code = (
        "import torch, sys; torch.set_default_dtype(torch.float64); sys.path[:0] = sys.argv[3:];"
        "from toys import lenet, quick_learner; learner = quick_learner(lenet());"
        "learner.add_random_masks(4).learn_task('a', torch.load(sys.argv[2])).save(sys.argv[1])"
    )
    path, data = str(tmp_path / "a.impress"), str(tmp_path / "data.pt")
    torch.save(blobs(1), data)
    subprocess.run([sys.executable, "-c", code, path, data, *sys.path], check=True)
    assert il.load(path).score(blobs(1), "a") > 0.8


class Mixed(nn.Module):
    """A body in bfloat16, norm and classifier in float32."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.norm = nn.Linear(FEATURES, 32).bfloat16(), nn.LayerNorm(32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.body(x).float())))


def test_a_head_has_the_dtype_of_the_layer_that_it_replaces():
    learner = quick_learner(il.adapt(Mixed())).add_random_masks(4).learn_task("a", blobs(1))
    assert learner.score(blobs(1), "a") > 0.8


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, 3))


class ModelEmaV2(nn.Module):
    """As timm's: it has a module and no forward."""

    def __init__(self, module):
        super().__init__()
        self.module = copy.deepcopy(module)


WRAPPERS = {
    "DataParallel": nn.DataParallel,
    "compile": torch.compile,
    "AveragedModel": torch.optim.swa_utils.AveragedModel,
    "ModelEmaV2": ModelEmaV2,
    "compile of DataParallel": lambda module: torch.compile(nn.DataParallel(module)),
}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_wrappers_are_taken_off(kind, tmp_path):
    learner = quick_learner(il.adapt(WRAPPERS[kind](network()))).add_random_masks(4)
    learner.learn_task("a", blobs(1)).save(tmp_path / "a.impress")
    logits = learner.logits(blobs(1)[0], "a")
    for module in (network(), WRAPPERS[kind](network())):
        again = il.load(tmp_path / "a.impress", module=module)
        assert torch.equal(again.logits(blobs(1)[0], "a"), logits)


@pytest.mark.parametrize(
    ("last", "line"),
    [(nn.LogSoftmax(1), None), (nn.Softmax(1), "ends in softmax"), (nn.Sigmoid(), "in sigmoid")],
)
def test_what_a_network_may_end_in(last, line):
    learner = quick_learner(il.adapt(network().append(last)), task_recipe=QUICK)
    if line is None:
        assert learner.add_random_masks(4).learn_task("a", blobs(1)).score(blobs(1), "a") > 0.8
    else:
        with pytest.raises(InputError, match=line):
            learner.learn_task("a", blobs(1))
