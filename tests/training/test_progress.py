import io
import re
import sys

import pytest

import impresslearn as il
from impresslearn.training.progress import Progress, progress_for, silent
from toys import QUICK, blobs, lenet, quick_learner, same


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("name", ["seven [/b] [red]", "a\x1b[2J\n"])
def test_a_bar_goes_to_standard_error(monkeypatch, capfd, name):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(True).titled(f"basis {name}").track(2) as advance:
        advance()
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert re.search(rf"basis {re.escape(repr(name)[1:-1])} \S+ 1/2 after 0:00:00 \S+ left", drawn)
    assert capfd.readouterr().out == ""


def test_what_is_shown_is_chosen(capfd, monkeypatch):
    with silent.track(1) as advance:
        advance()
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert [progress_for(choice).shown for choice in (True, False, "auto")] == [True, False, False]
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert progress_for("auto").shown


def test_a_log_gets_the_numbers_of_each_training(capfd):
    told = []
    learner = quick_learner(progress=lambda *line: told.append(line))
    quiet = quick_learner().learn_basis("first", blobs())
    learner.learn_basis("first", blobs()).learn_task("second", blobs(1))
    assert [line[:2] for line in told] == [
        (name, step) for name in ("basis first", "task second") for step in (1, 51, 60)
    ]
    losses = [values["loss"] for _, _, values in told]
    assert losses[2] < losses[0]
    rates = [values["learning_rate"] for _, _, values in told]
    assert rates[0] == QUICK.lr > rates[1] > rates[2] > 0
    assert {type(value) for _, _, values in told for value in values.values()} == {float}
    assert capfd.readouterr() == ("", "")
    # A log changes nothing.
    assert same(learner.bank_.mask("first"), quiet.bank_.mask("first"))


def test_other_methods_take_a_log_and_its_error_ends_the_work():
    told = []
    method = il.FineTuning(lenet(), recipe=QUICK, progress=lambda *line: told.append(line))
    method.learn_task("a", blobs())
    assert [line[:2] for line in told] == [("task a", step) for step in (1, 51, 60)]
    learner = quick_learner(progress=lambda *line: 1 / 0).add_random_masks(2)
    with pytest.raises(ZeroDivisionError):
        learner.learn_task("a", blobs())
    assert not learner.tasks_
