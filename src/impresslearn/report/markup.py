"""Pieces that both HTML pages are made of: their files, their figures and lists of facts."""

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from impresslearn.report.wording import said, spaced


def asset(name: str) -> str:
    """A file of the page: its HTML frame, its style or its script."""
    return (files("impresslearn.report") / "assets" / name).read_text(encoding="utf-8")


def figures_json(light: Mapping[str, Any], dark: Mapping[str, Any]) -> str:
    """Plotly figures by the id of their place, for both schemes; safe inside a script element."""
    drawn = {
        scheme: {name: figure.to_plotly_json() for name, figure in figures.items()}
        for scheme, figures in (("light", light), ("dark", dark))
    }
    return json.dumps(drawn, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def facts(heading: str, values: Mapping[str, Any]) -> str:
    """The values on one line: `Versions: python 3.11 · torch 2.13.0`."""
    listed = (f"{spaced(str(name))} {said(value)}" for name, value in values.items())
    return escape(f"{heading}: {' · '.join(listed)}")
