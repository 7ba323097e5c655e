"""The recipes for Avalanche run as the page has them; without Avalanche this test skips."""

import re
from pathlib import Path

import pytest

from impresslearn.errors import MissingDependencyError
from impresslearn.streams.torchvision import import_extra

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "avalanche.md"


# A worker of pytest sends a warning to the main process, which imports the module of its class: for
# Avalanche's own classes this imports all of Avalanche there, and fails.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_both_loops_of_the_page_have_the_same_accuracy():
    try:
        import_extra("avalanche", "Avalanche")
    except MissingDependencyError as error:
        pytest.skip(str(error))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    strategy, stream = names["strategy"], names["stream"]
    (theirs,) = strategy.eval(names["benchmark"].test_stream).values()
    ours = names["il"].evaluate(names["make_learner"](), stream).average_accuracy
    assert theirs == pytest.approx(ours)
    assert ours > 0.8
