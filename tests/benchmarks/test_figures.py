"""Figures of committed records keep the rules that readers rely on, and records are true today."""

import re
from pathlib import Path
from statistics import fmean

import pytest
from benchmarks.jobs import Cache, JobContext, in_order, run_jobs
from benchmarks.records import read_record, read_records
from benchmarks.report import STYLES, charts_of
from benchmarks.targets import find_target

from impresslearn.plotting import log_ticks, picture, places_of

RESULTS = Path(__file__).parents[2] / "paper" / "results"
FIGURES = [
    pytest.param(chart, id=f"{record['target']}-{number}")
    for record in read_records(RESULTS)
    for number, chart in enumerate(charts_of(record))
]


def layers(figure):
    """The figure's layers, those of layers included."""
    inner = figure.get("layer", [])
    return [figure, *(each for layer in inner for each in layers(layer))]


def encodings(figure, channel):
    found = (layer.get("encoding", {}).get(channel, {}) for layer in layers(figure))
    return [each for each in found if each]


def rows_of(figure):
    """All rows that the figure's layers draw."""
    kept = figure.get("datasets", {})
    given = [layer.get("data", {}) for layer in layers(figure)]
    return [row for data in given for row in data.get("values", kept.get(data.get("name"), []))]


def test_a_method_looks_the_same_beside_any_others():
    assert places_of(["LoRA", "new", "SupSup"], STYLES)["LoRA"] == STYLES["LoRA"]
    assert places_of(["new", "LoRA"], STYLES)["LoRA"] == STYLES["LoRA"]
    assert len(set(places_of(["new", "other", "LoRA"], STYLES).values())) == 3


def test_methods_of_a_figure_look_different():
    places = places_of(["LoRA, coded", "SVC", "LoRA", "fine-tuning", "SupSup"], STYLES)
    assert len(set(places.values())) == 5
    assert places["LoRA, coded"] == STYLES["LoRA"]
    assert places["SupSup"] == STYLES["SupSup"]


def test_a_figure_becomes_a_picture():
    assert picture(FIGURES[0].values[0]).startswith("<svg")


def test_logarithmic_ticks_are_round():
    assert log_ticks(60, 40_000) == [100, 1000, 10_000]
    assert log_ticks(120, 4000) == [100, 200, 500, 1000, 2000, 5000]


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_keep_the_rules(figure):
    """Axes contain what they show, titles are words, no interval is from fewer than five draws."""
    figure = figure.to_dict()
    title, rows = figure["title"], rows_of(figure)
    for across in encodings(figure, "x"):
        scale = across.get("scale") or {}
        if scale.get("type") == "log":
            low, high = scale["domain"]
            assert all(low < row["x"] < high for row in rows if "x" in row)
            assert sum(low <= tick <= high for tick in across["axis"]["values"]) >= 2
    if any("low" in row for row in rows):
        assert max(int(n) for n in re.findall(r"(\d+) (?:seed|task|row)", str(title))) >= 5
    assert "-mnist" not in title["text"]
    assert figure["description"]


ROWS = {
    "clinc150": {"method": "ImpressLearn, readout", "setting": "the preset"},
    "image-network": {"benchmark": "image-network-resnet20", "method": "ImpressLearn, few_labels"},
}


@pytest.mark.nightly
@pytest.mark.parametrize("target", ROWS)
def test_a_record_is_true_of_todays_code(target, records_root, tmp_path):
    plan, cache = find_target(target).plan("small"), Cache(tmp_path)
    planned = [each for each in plan.planned if ROWS[target].items() <= each.columns.items()]
    jobs = in_order(each.job for each in planned)
    run_jobs(jobs, cache, JobContext(str(records_root)), 2, "loky", lambda *_: None)
    rows = []
    for each in planned:
        rows += each.rows(cache.load(each.job).values)
    record = read_record(RESULTS / f"{target}.json")
    again, recorded = (
        [row for row in each if ROWS[target].items() <= row.items()]
        for each in (plan.finish(rows), record["rows"])
    )
    assert len(again) == len(recorded) > 0
    # Other processors round otherwise: half a point, and two bytes in a hundred.
    for key, tolerance in (("accuracy", {"abs": 0.005}), ("bytes_per_task", {"rel": 0.02})):
        before, now = (fmean(row[key] for row in rows) for rows in (recorded, again))
        assert now == pytest.approx(before, **tolerance), key
