"""The site of a version lies beside those of others, under a page that lists them."""

import re
import subprocess
import sys
from pathlib import Path

import impresslearn as il

SCRIPT = Path(__file__).parents[2] / "docs" / "versions.py"


def place(built, site):
    command = [sys.executable, str(SCRIPT), str(built), str(site)]
    return subprocess.run(command, capture_output=True, text=True)


def test_versions_are_listed_the_newest_first(tmp_path):
    built, site = tmp_path / "html", tmp_path / "site"
    assert place(built, site).stderr == f"{built} is not a built site; run make docs\n"
    built.mkdir()
    (built / "index.html").write_text("new")
    for version in ("0.9.0", "0.10.0", il.__version__, "drafts"):
        (site / version).mkdir(parents=True)
        (site / version / "index.html").write_text("old")
    assert place(built, site).returncode == 0
    assert (site / il.__version__ / "index.html").read_text() == "new"
    listed = re.findall(r'<a href="([^"]+)/index.html">', (site / "index.html").read_text())
    assert listed == ["0.10.0", "0.9.0", il.__version__]
    told = subprocess.run([sys.executable, str(SCRIPT), "one"], capture_output=True, text=True)
    assert told.stderr.startswith("usage: ")
