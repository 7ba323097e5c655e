"""The pages: one file each, loads nothing, shows names as they are written."""

import json
import random
import re
import time
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
import samples
from samples import EVIL

from impresslearn.errors import InputError
from impresslearn.report import parse_record, read_records, write_report


class Page(HTMLParser):
    """Start tags, visible text, and the text of style and script elements."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.texts, self.raw, self._inside = [], [], {}, None
        self.feed(path.read_text(encoding="utf-8"))

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


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    makes = (samples.comparison, samples.overlap, samples.hostile)
    write_report([parse_record(make()) for make in makes], path)
    return Page(path)


def test_loads_nothing(page):
    attributes = {name for _, attributes in page.tags for name in attributes}
    assert not attributes & {"src", "srcset", "action", "data", "poster"}
    links = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert links == ["#target-permuted-mnist", "#target-overlap", "#target-hostile"]
    assert not re.search(r"url\(|@import", "".join(page.raw["style"]))
    (policy,) = (a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    script = b64encode(sha256(page.raw["script"][1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; "
        "img-src data: blob:"
    )


def test_every_link_and_chart_has_its_place(page):
    places = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(places) == len(set(places))
    assert {"target-permuted-mnist", "target-overlap", "target-hostile"} <= set(places)
    charts = json.loads(page.raw["script"][0])
    assert set(charts) == {place for place in places if place.startswith("figure-")}
    assert all({"name": "dark", "value": False} in spec["params"] for spec in charts.values())


def test_tells_everything_of_a_record(page):
    shown = " ".join(page.texts)
    record = samples.comparison()
    for expected in (
        record["title"], record["claim"], record["finding"], record["data"],
        "small run: real data, reduced", "smoke run", "erdos_renyi", "python 3.11.7",
        "machine x86_64 · cores 2", "5 min 12 s for this run, 1 h 37 min for all its jobs",
        "mean ± 95% interval over 3 seeds; n: rows", "784!",
    ):  # fmt: skip
        assert expected in shown


def test_charts_are_described(page):
    labels = [attributes.get("aria-label", "") for _, attributes in page.tags]
    groups = "X, heterogeneous, homogeneous, GN, random, supsup"
    assert f"Box plot of test accuracy over basis masks N for {groups}" in labels


def test_names_are_escaped_everywhere(page):
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not {"b", "img"} & {tag for tag, _ in page.tags}
    assert page.texts.count(EVIL) >= 6


@pytest.mark.parametrize("how", [{"scale": "custom", "claim": ""}, {"claim": ""}])
def test_a_custom_run_is_described_as_one(tmp_path, how):
    write_report([parse_record(samples.overlap() | how)], tmp_path / "report.html")
    shown = " ".join(Page(tmp_path / "report.html").texts)
    assert "runs of your own: 1" in shown
    assert "targets" not in shown
    assert "smoke" not in shown
    assert "The paper" not in shown


def test_highlights_are_tiles(tmp_path):
    tile = {"title": EVIL, "value": "accuracy", "caption": "as is"}
    record = parse_record(samples.comparison() | {"scale": "demo", "highlights": [tile]})
    write_report([record], tmp_path / "report.html", title="A demo")
    page = Page(tmp_path / "report.html")
    shown = " ".join(page.texts)
    for expected in (EVIL, "as is", "A demo"):
        assert expected in shown
    assert "targets" not in shown
    assert [tag for tag, _ in page.tags].count("script") == 2


def test_says_that_it_cannot_write(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        write_report([parse_record(samples.overlap())], tmp_path)


@pytest.mark.slow
def test_fifty_thousand_rows(tmp_path):
    draw = random.Random(0)
    rows = [
        {"method": f"m{method}", "task": f"t{task}", "seed": seed, "masks": masks}
        | {"sparsity": sparsity, "accuracy": draw.random()}
        for method in range(5)
        for task in range(100)
        for seed in range(5)
        for masks in (1, 2, 5, 10)
        for sparsity in (0.8, 0.85, 0.9, 0.92, 0.95)
    ]
    common = {"x": "masks", "y": "accuracy", "group": "method"}
    figures = [{"kind": kind, **common} for kind in ("box", "line", "bar")]
    figures += [{"kind": "heatmap", "x": "masks", "y": "sparsity", "value": "accuracy"}]
    tables = [{"columns": ["method", "masks"], "values": ["accuracy"]}]
    shown = {"target": "big", "title": "", "rows": rows, "figures": figures, "tables": tables}
    samples.write(tmp_path, samples.HEAD | shown)
    started = time.perf_counter()
    write_report(read_records(tmp_path), tmp_path / "report.html")
    assert time.perf_counter() - started < 30  # 5 s on an idle core
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
