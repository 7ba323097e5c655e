"""Result records: one JSON file a target, read and checked before anything is drawn from it.

    format 1, target (the file's name), scale, title, claim, data, seeds
    rows      [{key: text, number or truth value}]; a row may lack what does not apply to it
    figures, tables, highlights    see `specification`
    settings, versions, hardware    {name: plain value}
    seconds, job_seconds    of the run, and of all its jobs together
    finding    only in older records; it gives way to the one in `findings`

`parse_record` takes the plain mapping, `read_record` a file, `read_records` a directory of them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, model_validator
from typing_extensions import Self

from impresslearn.errors import InputError, visible, visible_within
from impresslearn.report.checking import Plain, WithoutEmpty, naming, shown
from impresslearn.report.findings import FILE, read_findings, read_json
from impresslearn.report.quantities import quantity_of
from impresslearn.report.specification import Figure, Highlight, Table

FORMAT = 1
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


def _not_empty(row: dict[str, Any]) -> dict[str, Any]:
    if not row:
        raise ValueError("must be a mapping with entries")
    return row


Row = Annotated[dict[str, Plain], AfterValidator(_not_empty), WithoutEmpty]
Facts = Annotated[dict[str, Any], AfterValidator(_finite)]
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class Record(BaseModel):
    """A checked record; rows are as the file has them, without empty entries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = Field(strict=True, ge=FORMAT, le=FORMAT)
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
    found = [file for file in found if not file.name.startswith(".") and file.name != FILE]
    if not found:
        raise InputError(f"{path} has no result records (*.json)")
    findings, records = read_findings(found[0].parent), []
    for record in map(read_record, found):
        text = findings.get(record.target, {}).get(record.scale)
        update = {} if text is None else {"finding": visible(text)}
        records.append(record.model_copy(update=update))
    return records


def read_record(path: Path) -> Record:
    """The record in a file, whose name is the target's, as it is there. Raises InputError."""
    path = Path(path)
    with naming(str(path)):
        record = Record.model_validate(visible_within(read_json(path)))
        if record.target != path.stem:
            raise InputError(f"target must be the file's name {path.stem!r}, got {record.target!r}")
    return record


def parse_record(raw: Mapping[str, Any]) -> Record:
    """The record that a plain mapping holds. Raises InputError that names the place."""
    with naming("unusable result record"):
        return Record.model_validate(visible_within(raw))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The type of every key, which is one in all rows; every number is within its range."""
    columns: dict[str, str] = {}
    for position, row in enumerate(rows):
        for key, value in row.items():
            kind = NAMES.get(type(value), "number")
            wanted, quantity = columns.setdefault(key, TYPES.get(key, kind)), quantity_of(key)
            needed = None
            if kind != wanted:
                needed = f"a {wanted} in all rows"
            elif kind == "number" and not quantity.lowest <= value <= quantity.highest:
                needed = quantity.says
            if needed:
                raise InputError(f"rows[{position}].{key} must be {needed}, got {shown(value)}")
    return columns
