"""The page is one file, loads nothing, and shows names as they are written."""

import json
import re
from html.parser import HTMLParser

import pytest

from impresslearn.report import write_demo_report


class Page(HTMLParser):
    """Start tags, visible text, and the text of style and script elements."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.texts, self.raw, self._inside = [], [], {}, None
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag if tag in ("style", "script") else None

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.raw.setdefault(self._inside, []).append(data)
        else:
            self.texts.append(data)


@pytest.fixture
def page(record, tmp_path):
    def write():
        write_demo_report(record, tmp_path / "report.html")
        return Page((tmp_path / "report.html").read_text(encoding="utf-8"))

    return write


def test_loads_nothing(page):
    written = page()
    attributes = {name for _, attributes in written.tags for name in attributes}
    assert not attributes & {"src", "href", "srcset", "action", "data", "poster"}
    assert not re.search(r"url\(|@import", "".join(written.raw["style"]))
    policy = dict(written.tags)["meta"]
    assert policy["content"].startswith("default-src 'none'")


def test_holds_plotly_once_and_the_figures_for_both_schemes(page):
    data, plotly, script = page().raw["script"]
    figures = json.loads(data)
    assert set(figures) == {"light", "dark"}
    assert set(figures["light"]) == set(figures["dark"]) == {"accuracy", "coefficients", "bytes"}
    assert figures["light"]["accuracy"]["data"][0]["y"][0] == 0.9
    assert len(plotly) > 1_000_000
    assert "Plotly.react" in script


def test_shows_the_summary_and_every_task(page, record):
    shown = " ".join(page().texts)
    for expected in ("93.0%", "48 B", "4.2 kB", "88 × a new task", "12 s", "recipe learning rate"):
        assert expected in shown
    assert all(task["name"] in shown for task in record["tasks"])


def test_names_are_escaped_everywhere(page, record):
    evil = "</script><script>alert(1)</script><img src=x>"
    record["tasks"][0]["name"] = record["settings"][evil] = record["versions"]["x"] = evil
    record["coefficients"]["masks"][0] = record["coefficients"]["layers"][0] = evil
    written = page()
    assert [tag for tag, _ in written.tags].count("script") == 3
    assert "img" not in [tag for tag, _ in written.tags]
    assert evil in written.texts
