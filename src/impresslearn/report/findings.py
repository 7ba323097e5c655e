"""What people found in the results: findings.json beside the records, written by hand.

    {"permuted-mnist": {"small": "A coefficient a layer stays 15 points below SupSup."}}

A text a target and scale. A record that is measured again leaves it alone. Records of before kept
the text themselves, as `finding`; `with_kept` saves it when such a record is written again.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from impresslearn.errors import InputError
from impresslearn.report.checking import naming

FILE = "findings.json"
Findings = dict[str, dict[str, str]]


def read_findings(folder: Path) -> Findings:
    """Target -> scale -> text; none where the folder has no such file. Raises InputError."""
    path = Path(folder) / FILE
    if not path.exists():
        return {}
    with naming(str(path)):
        return TypeAdapter(Findings).validate_python(read_json(path))


def unshown(findings: Findings, shown: Iterable[tuple[str, str]]) -> list[str]:
    """Findings for none of the (target, scale) shown, in words."""
    there = set(shown)
    return [
        f"{target} at scale {scale}"
        for target, scales in findings.items()
        for scale in scales
        if (target, scale) not in there
    ]


def with_kept(findings: Findings, record: Any) -> Findings:
    """The findings, and the one that an older record holds, beside what is said there already."""
    if not isinstance(record, Mapping) or not record.get("finding"):
        return findings
    target, scale, old = (str(record.get(key)) for key in ("target", "scale", "finding"))
    there = findings.get(target, {}).get(scale, "")
    both = there if old in there else f"{there} {old}".strip()
    return findings | {target: findings.get(target, {}) | {scale: both}}


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises InputError, which does not name the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {error}") from None
