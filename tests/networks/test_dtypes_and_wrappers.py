"""Networks and stores name their dtype; wrappers around a module are taken off."""

import copy
import operator

import pytest
import torch
from torch import nn

import impresslearn as il
from toys import blobs, lenet, mlp, quick_learner, torch_default


def core(folder, data, network):
    """Logits, outputs and scores of what a learner does, from one task to its export."""
    inputs = data[0]
    learner = quick_learner(network).learn_basis("m", data).add_random_masks(3)
    learner.learn_task("a", data).save(folder / "a.impress")
    given = {"module": network.module} if network.spec is None else {}
    again = il.load(folder / "a.impress", **given, progress=False)
    again.learn_task("b", data).update_task("a", data)
    results = [learner.logits(inputs, "m"), again.logits(inputs, "b"), again.export("a")(inputs)]
    return [*results, learner.infer_task(inputs[:8]).best, again.score(data, "a")]


@pytest.mark.parametrize("default", ["float64", "bfloat16", "float16", "meta"])
def test_torchs_defaults_change_nothing(default, tmp_path):
    data, module = blobs(1), mlp()
    for make in (lenet, lambda: il.adapt(module)):
        usual = core(tmp_path, data, make())
        (tmp_path / "a.impress").unlink()
        with torch_default(default):
            found = core(tmp_path, data, make())
        for value, expected in zip(found, usual, strict=True):
            same = torch.equal if isinstance(value, torch.Tensor) else operator.eq
            assert same(value, expected)
        given = {"module": module} if make is not lenet else {}
        elsewhere = il.load(tmp_path / "a.impress", **given)  # what was saved there
        assert torch.equal(elsewhere.logits(data[0], "m"), usual[0])
        (tmp_path / "a.impress").unlink()


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
    learner = quick_learner(il.adapt(WRAPPERS[kind](mlp()))).add_random_masks(4)
    learner.learn_task("a", blobs(1)).save(tmp_path / "a.impress")
    logits = learner.logits(blobs(1)[0], "a")
    for module in (mlp(), WRAPPERS[kind](mlp())):
        again = il.load(tmp_path / "a.impress", module=module)
        assert torch.equal(again.logits(blobs(1)[0], "a"), logits)
