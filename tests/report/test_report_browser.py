"""The pages in a real browser: no complaint in the console, and every chart is drawn."""

import re
import shutil
import subprocess

import pytest
import samples
from test_report_figures import hostile

from impresslearn.report import parse_record, write_demo_report, write_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DARK_SCHEME, LIGHT_SCHEME = 0, 1
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium")


def opened(path, profile, scheme):
    """The page's document once its scripts have run, and what went to the console."""
    found = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--enable-logging=stderr", "--v=0", "--window-size=1160,900",
            f"--user-data-dir={profile}", f"--blink-settings=preferredColorScheme={scheme}",
            "--virtual-time-budget=20000", "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "<html" not in found.stdout:
        pytest.skip(f"chromium does not run here: {found.stderr[-300:]}")
    return found.stdout, [line for line in found.stderr.splitlines() if "CONSOLE" in line]


def plots(document):
    """The drawn part of every chart, by the id of its place."""
    starts = list(re.finditer(r'<div class="figure js-plotly-plot" id="([^"]+)"', document))
    ends = [start.start() for start in starts[1:]] + [len(document)]
    return {
        start[1]: document[start.start() : end] for start, end in zip(starts, ends, strict=True)
    }


def test_all_charts_are_drawn_and_nothing_complains(tmp_path):
    path = tmp_path / "report.html"
    makes = (samples.comparison, samples.frontier, samples.task_order, samples.overlap, hostile)
    write_report([parse_record(make()) for make in makes], path)
    document, console = opened(path, tmp_path / "profile", LIGHT_SCHEME)
    assert console == []
    drawn = plots(document)
    assert len(drawn) == 12
    for name, part in drawn.items():
        assert "main-svg" in part, name
        assert re.search(r'class="(trace|hm)', part), name
    assert drawn["figure-permuted-mnist-1"].count('class="trace boxes"') == 5
    assert drawn["figure-overlap-1"].count('class="trace bars"') == 3
    assert drawn["figure-overlap-1"].count('class="point"') == 27
    assert drawn["figure-task-order-1"].count("annotation-text") >= 25
    assert "rgb(31, 95, 208)" in drawn["figure-permuted-mnist-1"]
    assert "x_{1}$&amp;" in drawn["figure-hostile-1"]


def test_dark_surroundings_have_their_own_colours(tmp_path):
    path = tmp_path / "report.html"
    write_report([parse_record(samples.comparison())], path)
    document, console = opened(path, tmp_path / "profile", DARK_SCHEME)
    assert console == []
    assert "rgb(91, 147, 245)" in plots(document)["figure-permuted-mnist-1"]


def test_the_demo_is_drawn(tmp_path, record):
    path = tmp_path / "report.html"
    write_demo_report(record, path)
    document, console = opened(path, tmp_path / "profile", LIGHT_SCHEME)
    assert console == []
    assert set(plots(document)) == {"accuracy", "coefficients", "bytes"}
