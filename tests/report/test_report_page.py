"""The page of all records: one file, loads nothing, shows names as they are written."""

import json
import random
import re
import time

import pytest
import samples
from test_demo_page import Page
from test_report_figures import EVIL, hostile

from impresslearn.errors import InputError
from impresslearn.report import parse_record, read_records, write_report


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    records = [parse_record(make()) for make in (samples.comparison, samples.overlap, hostile)]
    write_report(records, path)
    return Page(path.read_text(encoding="utf-8"))


def test_loads_nothing(page):
    attributes = {name for _, attributes in page.tags for name in attributes}
    assert not attributes & {"src", "srcset", "action", "data", "poster"}
    links = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert links == ["#target-permuted-mnist", "#target-overlap", "#target-hostile"]
    assert not re.search(r"url\(|@import", "".join(page.raw["style"]))
    policies = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policies[0].startswith("default-src 'none'")


def test_every_link_and_figure_has_its_place(page):
    places = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(places) == len(set(places))
    assert {"target-permuted-mnist", "target-overlap", "target-hostile"} <= set(places)
    figures = json.loads(page.raw["script"][0])
    assert set(figures["light"]) == set(figures["dark"])
    assert set(figures["light"]) == {place for place in places if place.startswith("figure-")}


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
    told = [attributes.get("aria-label", "") for _, attributes in page.tags]
    assert (
        "Box plot of test accuracy over basis masks N for X, heterogeneous, homogeneous, GN, "
        "random, with supsup as reference"
    ) in told


def test_names_are_escaped_everywhere(page):
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert not {"b", "img"} & {tag for tag, _ in page.tags}
    assert page.texts.count(EVIL) >= 6


def test_says_that_it_cannot_write(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        write_report([parse_record(samples.overlap())], tmp_path)


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
    samples.write(
        tmp_path,
        samples.HEAD
        | {"target": "big", "title": "", "rows": rows, "figures": figures, "tables": tables},
    )
    started = time.perf_counter()
    write_report(read_records(tmp_path), tmp_path / "report.html")
    assert time.perf_counter() - started < 30  # 4 s on an idle core
    assert (tmp_path / "report.html").stat().st_size < 6_000_000
