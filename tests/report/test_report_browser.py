"""The pages in a real browser: no complaint in the console, and every chart is drawn."""

import re
import shutil
import subprocess

import pytest
import samples

from impresslearn.report import parse_record, write_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DARK_SCHEME, LIGHT_SCHEME = 0, 1
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs chromium")]


def charts(path, profile, scheme):
    """The drawing of every chart by its place, once the page's scripts have run without a word."""
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
    assert [line for line in found.stderr.splitlines() if "CONSOLE" in line] == []
    parts = re.split(r'<div class="figure', found.stdout.split("<script")[0])[1:]
    return {re.search(r'id="([^"]+)"', part)[1]: part for part in parts}


@pytest.mark.parametrize("scheme", [LIGHT_SCHEME, DARK_SCHEME])
def test_all_charts_are_drawn_in_the_colours_of_the_surroundings(tmp_path, scheme):
    path = tmp_path / "report.html"
    makes = (
        samples.comparison, samples.frontier, samples.task_order, samples.overlap, samples.hostile
    )  # fmt: skip
    write_report([parse_record(make()) for make in makes], path)
    drawn = charts(path, tmp_path / "profile", scheme)
    assert len(drawn) == 11
    ink, other = ("#1d2129", "#e8eaed") if scheme == LIGHT_SCHEME else ("#e8eaed", "#1d2129")
    for name, part in drawn.items():
        assert "<svg" in part, name
        assert ink in part, name
        assert other not in part, name
    assert "&lt;b&gt;$x_{1}$&amp;" in drawn["figure-hostile-1"]
    assert drawn["figure-overlap-1"].count('aria-roledescription="bar"') == 0
    assert drawn["figure-task-order-1"].count("<text") > 2 * 9
