"""Docstrings, which are plain text, as reStructuredText.

A bullet `- name: text` gets its name in bold, an indented paragraph becomes a block of code, and
characters that would be markup are escaped outside of code. A link leads to the overview page if
it has an example of the name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]*`)")
MARKUP = re.compile(r"([*|])|(?<=\w)(_)(?!\w)")
BULLET = re.compile(r"^- ([\w, ]+): ", re.MULTILINE)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LISTED = re.compile(r"^   (impresslearn\.\S+)$", re.MULTILINE)
PAGES = {path.stem: path.read_text("utf-8") for path in Path(__file__).parents[1].glob("api/*.md")}
PAGE_OF = {name: page for page, text in PAGES.items() for name in LISTED.findall(text)}


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(
    app: Sphinx, what: str, name: str, target: Any, options: Any, lines: list[str]
) -> None:
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = "\n\n".join(map(_formatted, paragraphs)).split("\n")
    page, word = PAGE_OF.get(name, ""), rf"\b{name.rpartition('.')[2]}\b"
    if any(re.search(word, code) for code in BLOCK.findall(PAGES.get(page, ""))):
        lines += ["", f"An example is on the page :doc:`/api/{page}`."]


def _formatted(paragraph: str) -> str:
    if paragraph.startswith("    "):
        return f".. code-block:: python\n\n{paragraph}"
    parts = CODE.split(paragraph)  # text and code by turns
    parts[::2] = [MARKUP.sub(r"\\\1\2", text) for text in parts[::2]]
    parts[1::2] = [f"`{code}`" for code in parts[1::2]]
    return BULLET.sub(r"- **\1**: ", "".join(parts))
