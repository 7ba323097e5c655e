"""Docstrings, which are plain text, as reStructuredText.

What is said of an argument becomes an item of a list, an indented paragraph a block of code, and
characters that would be markup are escaped outside of code.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]*`)")
ITEM = "\0"
"""Begins an argument, until the text is put together."""


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(
    app: Sphinx, what: str, name: str, target: Any, options: Any, lines: list[str]
) -> None:
    names = "|".join(map(re.escape, _argument_names(target)))
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = "\n\n".join(_formatted(each, names) for each in paragraphs).split("\n")


def _formatted(paragraph: str, names: str) -> str:
    if paragraph.startswith("    "):
        return f".. code-block:: python\n\n{paragraph}"
    parts = CODE.split(paragraph)
    for place in range(0, len(parts), 2):  # what is not code
        plain = re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", parts[place])
        if names:
            said = rf"(?<![\w.`-])((?:{names})(?:,\s+(?:{names}))*):(?=\s)"
            plain = re.sub(said, rf"{ITEM}**\1**:", plain)
        parts[place] = plain
    return _listed(re.sub(r"`([^`]*)`", r"``\1``", "".join(parts)))


def _listed(paragraph: str) -> str:
    """A paragraph with its arguments, if it has any, as a list."""
    if ITEM not in paragraph:
        return paragraph
    before, *items = " ".join(paragraph.split()).split(ITEM)
    after = ""
    if " Raises " in items[-1]:
        items[-1], word, after = items[-1].partition("Raises ")
        after = f"\n\n{word}{after}"
    # Items that a semicolon or a word joined to the next one end in a full stop now.
    items = [re.sub(r"[;,]$", ".", each.strip()) for each in items]
    return f"{before}\n\n" + "\n".join(f"- {each}" for each in items) + after


def _argument_names(target: Any) -> list[str]:
    """Arguments, and fields of a dataclass."""
    try:
        found = list(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return []
    found += getattr(target, "__annotations__", {})
    return [name for name in dict.fromkeys(found) if name not in ("self", "cls")]
