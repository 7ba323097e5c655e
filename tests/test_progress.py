import io
import sys

import pytest

from impresslearn.progress import Progress, progress_for, silent


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("progress", [silent, Progress(False, "work")])
def test_silence(progress, capfd):
    with progress.track(3) as advance:
        for _ in range(3):
            advance()
    assert capfd.readouterr() == ("", "")


def test_a_bar_goes_to_standard_error(monkeypatch, capfd):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(True).titled("basis seven").track(2) as advance:
        advance()
    assert "basis seven" in terminal.getvalue()
    assert capfd.readouterr().out == ""


def test_the_choice(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert [progress_for(choice).shown for choice in (True, False, "auto")] == [True, False, False]
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert progress_for("auto").shown
