"""Docstrings, which are plain text, as reStructuredText.

Argument names at the beginning of what is said of them become bold, and characters that would be
markup are escaped outside of code.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]*`)")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(
    app: Sphinx, what: str, name: str, target: Any, options: Any, lines: list[str]
) -> None:
    names = _argument_names(target)
    text = "\n".join(lines)
    parts = CODE.split(text)
    for place in range(0, len(parts), 2):  # what is not code
        plain = re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", parts[place])
        if names:
            words = "|".join(map(re.escape, names))
            said = rf"(?<![\w.`])((?:{words})(?:, (?:{words}))*):(?=\s)"
            plain = re.sub(said, r"**\1**:", plain)
        parts[place] = plain
    lines[:] = [re.sub(r"`([^`]*)`", r"``\1``", line) for line in "".join(parts).split("\n")]


def _argument_names(target: Any) -> list[str]:
    """Arguments, and fields of a dataclass."""
    try:
        found = list(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return []
    found += getattr(target, "__annotations__", {})
    return [name for name in dict.fromkeys(found) if name not in ("self", "cls")]
