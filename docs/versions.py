"""Puts the built site beside the sites of other versions, under a page that lists them.

    python docs/versions.py docs/_build/html SITE

Copies it to SITE/VERSION, in place of an older build of the same version, and writes
SITE/index.html: all versions that lie there, the newest first.
"""

from __future__ import annotations

import html
import shutil
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

import impresslearn

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>ImpressLearn: versions of this site</title>
<style>body {{ font: 1.1rem/1.6 system-ui; margin: 3rem auto; max-width: 40rem; padding: 0 1rem }}
:root {{ color-scheme: light dark }}</style>
<h1>ImpressLearn</h1>
<ul>
{entries}
</ul>
"""


def add_version(built: Path, site: Path, version: str) -> Path:
    """Copies a built site to where its version belongs, and lists it. Returns the list."""
    if not (built / "index.html").is_file():
        raise SystemExit(f"{built} is not a built site; run make docs")
    place = site / version
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(built, place)
    index = site / "index.html"
    index.write_text(PAGE.format(entries="\n".join(_entries(site))), "utf-8")
    return index


def _entries(site: Path) -> list[str]:
    """The versions that lie there as lines of a list, the newest first."""
    found = {}
    for place in site.iterdir():
        try:
            if (place / "index.html").is_file():
                found[Version(place.name)] = html.escape(place.name)
        except InvalidVersion:
            continue
    names = [found[version] for version in sorted(found, reverse=True)]
    newest = [" (the newest)"] + [""] * len(names)
    return [
        f'<li><a href="{name}/index.html">{name}</a>{remark}</li>'
        for name, remark in zip(names, newest, strict=False)
    ]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python docs/versions.py BUILT_SITE FOLDER_OF_ALL")
    print(add_version(Path(sys.argv[1]), Path(sys.argv[2]), impresslearn.__version__))
