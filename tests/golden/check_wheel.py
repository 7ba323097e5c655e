"""Run by the interpreter that a wheel was installed for: public names, and an older store."""

import json
from pathlib import Path

import torch

import impresslearn as il

HERE = Path(__file__).parent

for name in il.__all__:
    getattr(il, name)
assert "site-packages" in (il.__file__ or ""), il.__file__
learner = il.load(HERE / "store.impress", progress=False)
inputs = torch.linspace(-1, 1, 4 * 12).reshape(4, 12)
for name, expected in json.loads(HERE.joinpath("store.json").read_text()).items():
    torch.testing.assert_close(learner.logits(inputs, name), torch.tensor(expected))
print(f"impresslearn {il.__version__}: {len(il.__all__)} public names, {len(learner.tasks_)} tasks")
