"""Result records: one JSON file a target, read and checked before anything is drawn from it.

    format 2 (or 1), target (the file's name), scale, title, claim, data, seeds
    rows      [{key: text, number or truth value}]; a row may lack what does not apply to it; in the
              file an entry with lists stands for a row each (since format 2, see `rows`)
    figures, tables, highlights    see `specification`
    settings, versions, hardware, code (not in older records)    {name: plain value}
    seconds, job_seconds    of the run, and of all its jobs together
    finding    only in older records; it gives way to the one in findings.json

What people found in the results is in findings.json beside the records, written by hand: a text a
target and scale, {"permuted-mnist": {"small": "One coefficient a layer stays 15 points below."}}.
A record that is measured again leaves it alone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    TypeAdapter,
    model_validator,
)
from typing_extensions import Self

from benchmarks.report.quantities import quantity_of
from benchmarks.report.rows import unfolded
from benchmarks.report.specification import (
    Figure,
    Highlight,
    Plain,
    Table,
    WithoutEmpty,
    naming,
    shown,
)
from impresslearn.errors import InputError, visible, visible_within

OLDEST, FORMAT = 1, 2
FINDINGS = "findings.json"
Findings = dict[str, dict[str, str]]
NO_CLAIM = "says nothing about this run, which is one's own"
"""The claim in older records of custom runs."""
NAMES = {str: "text", bool: "flag"}
TYPES = {"method": "text", "task": "text", "seed": "number"}


def _finite(value: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("must hold plain, finite values") from None
    return value


Row = Annotated[dict[str, Plain], Field(min_length=1), WithoutEmpty]
Facts = Annotated[dict[str, Any], AfterValidator(_finite)]
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class Record(BaseModel):
    """A checked record; rows are as the file has them, without empty entries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = Field(strict=True, ge=OLDEST, le=FORMAT)
    target: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    scale: Literal["smoke", "small", "paper", "custom", "demo"]
    title: str
    claim: str
    data: str
    seeds: tuple[StrictInt, ...]
    rows: tuple[Row, ...] = Field(min_length=1)
    figures: tuple[Annotated[Figure, WithoutEmpty], ...]
    tables: tuple[Annotated[Table, WithoutEmpty], ...]
    highlights: tuple[Annotated[Highlight, WithoutEmpty], ...] = ()
    settings: Facts
    code: Facts = {}
    versions: Facts
    hardware: Facts
    seconds: Seconds
    job_seconds: Seconds | None
    finding: str = ""

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        columns = _columns(self.rows)
        for part in ("figures", "tables", "highlights"):
            for place, asked in enumerate(getattr(self, part)):
                with naming(f"{part}[{place}]"):
                    asked.check(columns)
        return self

    @property
    def is_custom(self) -> bool:
        """Whether this is a run of the user's own, about which the paper claims nothing."""
        return self.scale != "demo" and (self.scale == "custom" or self.claim in ("", NO_CLAIM))


def read_records(path: Path) -> list[Record]:
    """All records of a directory, by name, or the one of a file, with what was found in them.

    Raises InputError that names the file and the place in it, or says that there is none.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"there is no {path}; give a directory with result records (*.json)")
    found = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = [file for file in found if not file.name.startswith(".") and file.name != FINDINGS]
    if not found:
        raise InputError(f"{path} has no result records (*.json)")
    findings, records = read_findings(found[0].parent), []
    for record in map(read_record, found):
        text = findings.get(record.target, {}).get(record.scale, record.finding)
        records.append(record.model_copy(update={"finding": visible(text)}))
    return records


def read_record(path: Path) -> Record:
    """The record in a file, whose name is the target's, as it is there. Raises InputError."""
    path = Path(path)
    with naming(str(path)):
        record = Record.model_validate(visible_within(_with_rows(read_json(path))))
        if record.target != path.stem:
            raise InputError(f"target must be the file's name {path.stem!r}, got {record.target!r}")
    return record


def parse_record(raw: Mapping[str, Any]) -> Record:
    """The record that a plain mapping holds. Raises InputError that names the place."""
    with naming("unusable result record"):
        return Record.model_validate(visible_within(_with_rows(raw)))


def read_findings(folder: Path) -> Findings:
    """Target -> scale -> text; none where the folder has no such file. Raises InputError."""
    path = Path(folder) / FINDINGS
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


def _with_rows(raw: Any) -> Any:
    """The record with its rows unfolded."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("rows"), list):
        return raw
    return {**raw, "rows": list(unfolded(raw["rows"]))}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The type of every key, which is one in all rows; every number is within its range."""
    columns: dict[str, str] = {}
    for position, row in enumerate(rows):
        for key, value in row.items():
            kind = NAMES.get(type(value), "number")
            wanted, quantity = columns.setdefault(key, TYPES.get(key, kind)), quantity_of(key)
            within = kind != "number" or quantity.lowest <= value <= quantity.highest
            if kind != wanted or not within:
                needed = f"a {wanted} in all rows" if kind != wanted else quantity.says
                raise InputError(f"rows[{position}].{key} must be {needed}, got {shown(value)}")
    return columns
