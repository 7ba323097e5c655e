"""The pages: they load nothing, show names as written, and draw all charts in a browser."""

import json
import re
import shutil
import subprocess
import time
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
import samples
from samples import EVIL

from benchmarks.report import parse_record, write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
TILE = {"title": "A", "value": "accuracy", "caption": "as is"}
INKS = {"dark": "#e8eaed", "light": "#1d2129"}


class Page(HTMLParser):
    """Start tags, visible text, and the text of style and script elements."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.texts, self.raw, self._inside = [], [], {}, None
        self.feed(path.read_text(encoding="utf-8"))
        self.shown = " ".join(self.texts)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag if tag in ("style", "script") else None

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        part = self.raw.setdefault(self._inside, []) if self._inside else self.texts
        part.append(data)

    def all_of(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]


def written(folder, record):
    path = folder / "report.html"
    write_report([parse_record(record)], path)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report([parse_record(make()) for make in samples.ALL], path)
    return path


@pytest.fixture(scope="module")
def page(path):
    return Page(path)


def test_loads_nothing(page):
    attributes = {name for _, attributes in page.tags for name in attributes}
    assert not attributes & {"src", "srcset", "action", "data", "poster"}
    links = page.all_of("href")
    assert links == ["#target-permuted-mnist", "#target-overlap", "#target-hostile"]
    assert not re.search(r"url\(|@import", "".join(page.raw["style"]))
    (policy,) = (a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    script = b64encode(sha256(page.raw["script"][1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; "
        "img-src data: blob:"
    )


def test_every_link_and_chart_has_its_place(page):
    places = page.all_of("id")
    assert len(places) == len(set(places))
    assert {link[1:] for link in page.all_of("href")} <= set(places)
    charts = json.loads(page.raw["script"][0])
    assert set(charts) == {place for place in places if place.startswith("figure-")}
    assert all({"name": "dark", "value": False} in spec["params"] for spec in charts.values())
    groups = "X, heterogeneous, homogeneous, supsup"
    about = f"Box plot of test accuracy over basis masks N for {groups}"
    assert about in page.all_of("aria-label")


def test_tells_everything_of_a_record(page):
    record = samples.comparison()
    for expected in (
        *(record[key] for key in ("title", "claim", "finding", "data")),
        "small run: real data, reduced", "smoke run", "erdos_renyi", "python 3.11.7",
        "machine x86_64 · cores 2", "5 min 12 s for this run, 1 h 37 min for all its jobs",
        "mean ± half a 95% t interval over the means of 3 seeds; n: rows", "784!",
    ):  # fmt: skip
        assert expected in page.shown


def test_names_are_no_markup(page):
    assert page.texts.count(EVIL) >= 8
    assert not {"i", "img"} & {tag for tag, _ in page.tags}
    assert [tag for tag, _ in page.tags].count("script") == 2


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"scale": "demo", "highlights": [TILE]}, ("as is", "20.0%")),
        *(({"scale": of, "claim": ""}, ("runs of your own: 1",)) for of in ("custom", "smoke")),
    ],
)
def test_a_demo_and_a_custom_run_are_described_as_such(tmp_path, more, expected):
    shown = Page(written(tmp_path, samples.overlap() | {"claim": ""} | more)).shown
    assert all(each in shown for each in expected)
    assert not any(absent in shown for absent in ("targets", "smoke", "The paper"))


@pytest.mark.slow
def test_fifty_thousand_rows(tmp_path):
    some = {"method": list("abcde"), "task": [f"t{n}" for n in range(100)], "seed": range(20)}
    rows = samples.measured(0.8, **some, masks=range(1, 6))
    assert len(rows) == 50_000
    figure = {"x": "masks", "y": "accuracy", "group": "method"}
    figures = [{"kind": kind, **figure} for kind in ("box", "line", "bar")]
    tables = [{"columns": ["method", "masks"], "values": ["accuracy"]}]
    started = time.perf_counter()
    path = written(tmp_path, samples.record("big", rows, figures, tables))
    assert time.perf_counter() - started < 30  # 5 s on an idle core
    assert path.stat().st_size < 2_000_000


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("theme", INKS)
def test_a_browser_draws_all_charts_in_its_colours_without_complaint(path, page, tmp_path, theme):
    found = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0",
            f"--user-data-dir={tmp_path}", "--window-size=1160,900",
            f"--blink-settings=preferredColorScheme={list(INKS).index(theme)}",
            "--virtual-time-budget=20000", "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "<html" not in found.stdout:
        pytest.skip(f"chromium does not run here: {found.stderr[-300:]}")
    assert [line for line in found.stderr.splitlines() if "CONSOLE" in line] == []
    drawn = re.split(r'<div class="figure', found.stdout.split("<script")[0])[1:]
    assert len(drawn) == len(json.loads(page.raw["script"][0]))
    assert all("<svg" in part and INKS[theme] in part for part in drawn)
    other = next(ink for name, ink in INKS.items() if name != theme)
    assert not any(other in part for part in drawn)
