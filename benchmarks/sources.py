"""Makes the streams that jobs name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.streams import STREAMS
from impresslearn.streams import Stream


def make_stream(settings: Mapping[str, Any], data: Path, *, download: bool = True) -> Stream:
    """One of `STREAMS`.

    - data: where data sets lie, unless `root` is a setting; `folder` is one there.
    - download: whether a missing data set may be fetched.
    """
    given = {key: value for key, value in settings.items() if key != "name"}
    make = STREAMS[settings["name"]]
    parameters = inspect.signature(make).parameters
    root = parameters.get("root")
    located = "folder" in given or (root is not None and root.default is not root.empty)
    if root is not None and located and "root" not in given:
        given["root"] = str(data / given.pop("folder", ""))
    if not download and "download" in parameters:
        given["download"] = False
    return make(**given)
