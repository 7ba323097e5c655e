"""Figures of committed records keep the rules that readers rely on, and records are true today."""

import math
import re
from itertools import combinations
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

import pytest
from benchmarks.jobs import Cache, JobContext, in_order, run_jobs
from benchmarks.records import read_record, read_records
from benchmarks.report import STYLES, charts_of, picture
from benchmarks.targets import find_target

from impresslearn.plotting import SERIES, log_ticks, places_of

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


def rows_of(figure):
    """All rows that the figure's layers draw."""
    kept = figure.get("datasets", {})
    given = [layer.get("data", {}) for layer in layers(figure)]
    return [row for data in given for row in data.get("values", kept.get(data.get("name"), []))]


def drawn(svg, tag, left=0.0, top=0.0):
    """The elements of a picture with this tag that are not turned, and where each stands."""
    for element in svg:
        moved = element.get("transform", "")
        if "rotate" in moved or element.get("opacity") == "0":
            continue
        across, down = map(float, re.findall(r"-?[\d.]+(?:e-\d+)?", moved) or (0, 0))
        if element.tag.endswith(tag):
            yield element, left + across, top + down
        yield from drawn(element, tag, left + across, top + down)


def words_of(svg):
    """The words of a picture: text, box (left, right, top, bottom), and the group it names."""
    for element, left, top in drawn(svg, "text"):
        if element.get("stroke") or not element.text:  # what makes a label stand out from lines
            continue
        size = float(element.get("font-size")[:-2])
        length = 0.5 * size * len(element.text)
        left -= length * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")]
        named = re.search("group: ([^;]*)", element.get("aria-label", ""))
        box = (left, left + length, top - 0.7 * size, top)
        yield element.text, box, named and named[1]


def points_of(svg):
    """Where the marks of a picture stand, by group."""
    points = {}
    for element, left, top in drawn(svg, "path"):
        named = re.search("group: ([^;]*)", element.get("aria-label", ""))
        if named and element.get("aria-roledescription") == "point":
            points.setdefault(named[1], []).append((left, top))
    return points


def gap(box, points):
    """From a box to the nearest point."""
    left, right, top, bottom = box
    return min(
        math.hypot(max(left - x, x - right, 0), max(top - y, y - bottom, 0)) for x, y in points
    )


def luminance(colour):
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_stand_out_from_white():
    assert min(1.05 / (luminance(colour) + 0.05) for colour in SERIES) >= 3
    assert len(set(SERIES)) == len(SERIES)


def test_a_method_looks_the_same_beside_any_others():
    assert places_of(["LoRA", "new", "SupSup"], STYLES)["LoRA"] == STYLES["LoRA"]
    assert places_of(["new", "LoRA"], STYLES)["LoRA"] == STYLES["LoRA"]
    assert len(set(places_of(["new", "other", "LoRA"], STYLES).values())) == 3
    places = places_of(["LoRA, coded", "SVC", "LoRA", "fine-tuning", "SupSup"], STYLES)
    assert len(set(places.values())) == 5
    assert (places["LoRA, coded"], places["SupSup"]) == (STYLES["LoRA"], STYLES["SupSup"])


def check_words(svg):
    """No words overlap or are cut off; the labels that are nearer to another's mark."""
    words, points, nearer = list(words_of(svg)), points_of(svg), []
    named = {group for _, _, group in words if group}
    assert not named or named == set(points), "marks without their name beside them"
    for (one, box, _), (other, beside, _) in combinations(words, 2):
        apart = box[1] <= beside[0] or beside[1] <= box[0]
        assert apart or box[3] <= beside[2] or beside[3] <= box[2], f"{one} is over {other}"
    for text, (left, right, top, bottom), group in words:
        assert 0 <= left < right <= float(svg.get("width")), f"{text} is cut off"
        assert 0 <= top < bottom <= float(svg.get("height")), f"{text} is cut off"
        if group in points:
            box = (left, right, top, bottom)
            others = [point for name in points if name != group for point in points[name]]
            own = gap(box, points[group])
            assert own <= 22, f"{text} is far from its marks"
            assert gap(box, others) > 2, f"{text} covers a mark"
            nearer += [text] * (own > gap(box, others))
    return nearer


@pytest.mark.parametrize("figure", FIGURES)
def test_words_are_readable(figure):
    """Labels stand beside their marks and cover no others; where marks are dense, four at most are
    nearer to another's.
    """
    assert len(check_words(ElementTree.fromstring(picture(figure)))) <= 4


def test_logarithmic_ticks_are_round():
    assert log_ticks(60, 40_000) == [100, 1000, 10_000]
    assert log_ticks(120, 4000) == [100, 200, 500, 1000, 2000, 5000]


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_keep_the_rules(figure):
    """Axes contain what they show, titles are words, no interval is from fewer than five draws."""
    figure = figure.to_dict()
    title, rows = figure["title"], rows_of(figure)
    for layer in layers(figure):
        across = layer.get("encoding", {}).get("x", {})
        scale = across.get("scale") or {}
        if scale.get("type") == "log":
            low, high = scale["domain"]
            assert all(low < row["x"] < high for row in rows if "x" in row)
            assert sum(low <= tick <= high for tick in across["axis"]["values"]) >= 2
        colour = layer.get("encoding", {}).get("color", {})
        assert not colour.get("legend") or len(colour["scale"]["domain"]) <= 6
    drawn = str(figure)
    assert "boxplot" not in drawn or "'chance'" in drawn
    assert "against bytes" not in drawn or "'window'" in drawn
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
