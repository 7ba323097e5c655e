"""Logits and bytes of every parametrisation, precision and norm policy are those of golden.json.

Each group of problems is one test: a parametrisation under a norm policy, at every precision.
"""

import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_problems import Problem, dedicated, fixed_inputs, learn, network, tasks

import impresslearn as il

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
CLOSE = 0.05
"""Tolerance, as a share of the largest logit."""
SPREAD = json.loads(Path(__file__).with_name("spread.json").read_text(encoding="utf-8"))
"""What two processors learn differently: problem -> difference of the logits, as a share."""

PROBLEMS = [*tasks(), *dedicated()]
GROUPS = [list(group) for _, group in groupby(PROBLEMS, lambda problem: problem[:2])]

pytestmark = pytest.mark.filterwarnings("ignore")  # tasks of five steps are warned about


def check(problem: Problem, learner: il.ImpressLearner) -> torch.Tensor:
    """Compares a learner with golden.json and returns its logits."""
    logits, expected = learner.logits(fixed_inputs(), "learned"), GOLDEN[problem.key]
    spread = SPREAD.get(problem.key, 0)
    assert abs(learner.tasks_["learned"].bytes - expected["bytes"]) <= 2 * (spread > 0), problem.key
    wanted = torch.tensor(expected["logits"])
    error = float((logits - wanted).abs().max() / wanted.abs().max())
    line = f"{problem.key}: logits differ by {error:.1e} of the largest"
    assert error < max(CLOSE, 3 * spread), line
    return logits


def test_every_golden_value_is_compared():
    assert [problem.key for problem in PROBLEMS] == list(GOLDEN)


@pytest.mark.parametrize("problems", GROUPS, ids=lambda group: "-".join(group[0][:2]))
def test_logits_and_bytes_before_and_after_saving_and_exporting(problems, tmp_path):
    for problem in problems:
        learner, path = learn(problem), tmp_path / problem.precision
        logits = check(problem, learner)
        learner.save(path)
        loaded = il.load(path, module=network(problem.norm), progress=False)
        assert torch.equal(check(problem, loaded), logits), problem.key
    # The last one is coded.
    with il.open_store(path, module=network(problem.norm), readonly=True) as store:
        assert torch.equal(store.logits(fixed_inputs(), "learned"), logits)
        labels = logits.argmax(dim=1).numpy()
        np.testing.assert_array_equal(store.predict(fixed_inputs(), "learned"), labels)
        exported = store.export("learned")(fixed_inputs())
    torch.testing.assert_close(exported, logits, rtol=1e-4, atol=1e-5)


def test_a_store_that_was_made_earlier_loads():
    here = Path(__file__).parent
    learner = il.load(here / "store.impress", progress=False)
    inputs = torch.linspace(-1, 1, 4 * 12).reshape(4, 12)
    for name, expected in json.loads((here / "store.json").read_text()).items():
        torch.testing.assert_close(learner.logits(inputs, name), torch.tensor(expected))
    assert [version.version for version in learner.versions("task")] == [1, 2]
