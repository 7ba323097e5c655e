"""Shows under each block of a page what it printed, and the charts that it saved as .svg files.

Pages in the notebooks folder are left to myst-nb. A page's output is kept for the next build,
under a name that changes with its text and with the package.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from page_code import PageError, blocks, missing_command, run_page
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util import logging

ROOT = Path(__file__).parents[2]
OUTPUT = "\n\n```{{code-block}} text\n:class: output\n\n{}\n```"
SAVED = re.compile(r"""(?:"([^"\n]+)"\))?\.save(?:_chart)?\(["']([\w-]+\.svg)["']\)""")
CHART = '\n\n```{{raw}} html\n<img class="chart" alt="{}" src="data:image/svg+xml;base64,{}">\n```'
log = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _add_outputs)
    return {"parallel_read_safe": False}


def code_version() -> str:
    """Changes with the package's code and with what runs the pages."""
    files = sorted([*(ROOT / "src").rglob("*.py"), Path(__file__).with_name("page_code.py")])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _add_outputs(app: Sphinx, name: str, source: list[str]) -> None:
    if name.startswith("notebooks/"):
        return
    page, text = Path(app.env.doc2path(name)), source[0]
    found = blocks(text)
    if not any(block.kind in ("python", "bash") for block in found):
        return
    missing = missing_command(page)
    if missing:
        log.info("%s is shown without outputs: there is no %s", name, missing)
        return
    outputs, charts = _outputs(app, page, text)
    for block, printed in reversed(list(zip(found, outputs, strict=True))):
        shown = OUTPUT.format(printed) if printed else ""
        for title, file in SAVED.findall(block.code):
            if file in charts:
                alt = title or Path(file).stem.replace("-", " ")
                shown += CHART.format(escape(alt, quote=True), charts[file])
        text = text[: block.end] + shown + text[block.end :]
    source[0] = text


def _outputs(app: Sphinx, page: Path, text: str) -> tuple[list[str], dict[str, str]]:
    """What each block printed, and the charts that the page left, by file."""
    key = hashlib.sha256(f"{code_version()}\n{text}".encode()).hexdigest()[:24]
    kept = Path(app.doctreedir).parent / "outputs" / f"{key}.json"
    if kept.exists():
        printed, charts = json.loads(kept.read_text(encoding="utf-8"))
        return printed, charts
    with tempfile.TemporaryDirectory() as folder:
        try:
            printed = run_page(page, Path(folder))
        except PageError as error:
            raise SphinxError(str(error)) from None
        files = sorted(Path(folder).glob("*.svg"))
        charts = {file.name: base64.b64encode(file.read_bytes()).decode() for file in files}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps([printed, charts]), encoding="utf-8")
    return printed, charts
