"""Where numbers come from: the code's commit, and the processor. Needs no torch."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import impresslearn

ROOT = Path(impresslearn.__file__).parent
SECONDS = 20
"""How long git may take."""


def code_facts(hashed: str | None = None) -> dict[str, Any]:
    """commit, null where the package lies in no checkout of itself; uncommitted: whether
    the package's files differed from it; hash: of the code that jobs depend on.
    """
    commit, uncommitted = checkout_of(ROOT)
    return {"commit": commit, "uncommitted": uncommitted, "hash": hashed}


def checkout_of(folder: Path) -> tuple[str | None, bool | None]:
    """The commit that is checked out, and whether files below the folder differ from it.

    None, None where git does not keep the folder's `__init__.py`: an installed package may lie in
    somebody else's checkout.
    """
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--short", ".")
    return commit, None if changes is None else bool(changes)


def processor_name() -> str | None:
    """The processor's model, as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine() or None


def _git(folder: Path, *words: str) -> str | None:
    """What git says, or None where there is no git, or it objects."""
    command = ["git", "-C", str(folder), *words]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
