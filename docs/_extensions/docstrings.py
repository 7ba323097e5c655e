"""Docstrings, which are plain text, as reStructuredText.

A bullet `- name: text` gets its name in bold, an indented paragraph becomes a block of code, and
characters that would be markup are escaped outside of code.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]*`)")
MARKUP = re.compile(r"([*|])|(?<=\w)(_)(?!\w)")
BULLET = re.compile(r"^- ([\w, ]+): ", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(
    app: Sphinx, what: str, name: str, target: Any, options: Any, lines: list[str]
) -> None:
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = "\n\n".join(map(_formatted, paragraphs)).split("\n")


def _formatted(paragraph: str) -> str:
    if paragraph.startswith("    "):
        return f".. code-block:: python\n\n{paragraph}"
    parts = []
    for part in CODE.split(paragraph):
        if part.startswith("`"):
            parts.append(f"`{part}`")
        else:
            parts.append(MARKUP.sub(r"\\\1\2", part))
    return BULLET.sub(r"- **\1**: ", "".join(parts))
