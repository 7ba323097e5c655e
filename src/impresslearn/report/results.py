"""Result records: one JSON file a target, read and checked before anything is drawn from it.

    format 1, target (the file's name), scale, title, claim, data, seeds
    rows      [{key: text, number or truth value}]; a row may lack what does not apply to it
    figures, tables    see `specification`
    settings, versions, hardware    {name: plain value}
    seconds, job_seconds    of the run, and of all its jobs together
    finding    only in older records; it gives way to the one in `findings`

`parse_record` takes the plain mapping, `read_record` a file, `read_records` a directory of them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from impresslearn.errors import InputError, visible, visible_within
from impresslearn.report.checks import (
    entries,
    is_list,
    is_number,
    kind,
    listed,
    naming,
    plain,
    require,
    shown,
    text,
)
from impresslearn.report.findings import FILE, Findings, read_findings, read_json
from impresslearn.report.quantities import quantity_of
from impresslearn.report.specification import Figure, TableOf, parse_figure, parse_table

FORMAT = 1
SCALES = ("smoke", "small", "paper")
TEXTS = ("title", "claim", "data")
MAPPINGS = ("settings", "versions", "hardware")
KEYS = (
    "format", "target", "scale", *TEXTS, "seeds", "rows", "figures", "tables", *MAPPINGS,
    "seconds", "job_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A checked record; rows are as the file has them, without empty entries."""

    target: str
    scale: str
    title: str
    claim: str
    data: str
    seeds: tuple[int, ...]
    rows: tuple[Mapping[str, Any], ...]
    figures: tuple[Figure, ...]
    tables: tuple[TableOf, ...]
    settings: Mapping[str, Any]
    versions: Mapping[str, Any]
    hardware: Mapping[str, Any]
    seconds: float
    job_seconds: float | None
    finding: str = ""


def read_records(path: Path) -> list[Record]:
    """All records of a directory, by name, or the one of a file.

    Raises InputError that names the file and the place in it, or says that there is none.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"there is no {path}; give a directory with result records (*.json)")
    if not path.is_dir():
        return [_with_finding(read_record(path), read_findings(path.parent))]
    found = sorted(
        file for file in path.glob("*.json") if not file.name.startswith(".") and file.name != FILE
    )
    if not found:
        raise InputError(f"{path} has no result records (*.json)")
    findings = read_findings(path)
    return [_with_finding(read_record(file), findings) for file in found]


def read_record(path: Path) -> Record:
    """The record in a file, whose name is the target's, as it is there. Raises InputError."""
    path = Path(path)
    with naming(str(path)):
        record = _parse(read_json(path))
        if record.target != path.stem:
            raise InputError(f"target must be the file's name {path.stem!r}, got {record.target!r}")
    return record


def parse_record(raw: Mapping[str, Any]) -> Record:
    """The record that a plain mapping holds. Raises InputError that names the place."""
    with naming("unusable result record"):
        return _parse(raw)


def _with_finding(record: Record, findings: Findings) -> Record:
    found = findings.get(record.target, {}).get(record.scale)
    return record if found is None else replace(record, finding=visible(found))


def _parse(raw: Any) -> Record:
    try:
        raw = visible_within(raw)  # once, for tables, pictures and page alike
    except RecursionError:
        raise InputError("is nested too deeply") from None
    values = dict(zip(KEYS, entries(raw, KEYS, "the record"), strict=True))
    unknown = [str(key) for key in raw if key not in (*KEYS, "finding")]
    require(not unknown, f"the record has {listed(unknown)}; it holds {listed(KEYS)}")
    if values["format"] != FORMAT or isinstance(values["format"], bool):
        raise InputError(f"format must be {FORMAT}, got {shown(values['format'])}")
    target, scale, job_seconds = values["target"], values["scale"], values["job_seconds"]
    good = isinstance(target, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", target)
    require(bool(good), f"target must be a plain name like 'permuted-mnist', got {shown(target)}")
    require(scale in SCALES, f"scale must be one of {listed(SCALES)}, got {shown(scale)}")
    for name in MAPPINGS:
        require(
            isinstance(values[name], Mapping), f"{name} must be a mapping, got {kind(values[name])}"
        )
        plain(values[name], name)
    rows = _rows(values["rows"])
    columns = _columns(rows)
    figures, tables = (_list(values[name], name) for name in ("figures", "tables"))
    return Record(
        target=target,
        scale=scale,
        seeds=tuple(
            _seed(each, f"seeds[{i}]") for i, each in enumerate(_list(values["seeds"], "seeds"))
        ),
        rows=rows,
        figures=tuple(parse_figure(f, f"figures[{i}]", columns) for i, f in enumerate(figures)),
        tables=tuple(parse_table(t, f"tables[{i}]", columns) for i, t in enumerate(tables)),
        seconds=_duration(values["seconds"], "seconds"),
        job_seconds=None if job_seconds is None else _duration(job_seconds, "job_seconds"),
        settings=values["settings"],
        versions=values["versions"],
        hardware=values["hardware"],
        finding=text(raw.get("finding", ""), "finding"),
        **{name: text(values[name], name) for name in TEXTS},
    )


def _rows(raw: Any) -> tuple[Mapping[str, Any], ...]:
    require(is_list(raw) and len(raw) > 0, "rows must be a list of at least one row")
    for position, row in enumerate(raw):
        if not isinstance(row, Mapping) or not row:
            raise InputError(f"rows[{position}] must be a mapping with entries, got {shown(row)}")
    return tuple({key: value for key, value in row.items() if value is not None} for row in raw)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The type of every key; one key has one type in all rows."""
    found: dict[str, tuple[str, int]] = {}
    for position, row in enumerate(rows):
        for key, value in row.items():
            of_value = _type(value)
            if of_value is None:
                raise InputError(
                    f"rows[{position}].{key} must be a text, a finite number or a truth value, "
                    f"got {shown(value)}"
                )
            first = found.setdefault(key, (of_value, position))
            if first[0] != of_value:
                raise InputError(
                    f"rows[{position}].{key} must be a {first[0]} as in rows[{first[1]}], "
                    f"got {shown(value)}"
                )
    columns = {key: of_key for key, (of_key, _) in found.items()}
    for key, wanted in (("method", "text"), ("task", "text"), ("seed", "number")):
        if columns.get(key, wanted) != wanted:
            place = f"rows[{found[key][1]}].{key}"
            raise InputError(f"{place} must be a {wanted}, got a {columns[key]}")
    _check_ranges(rows, [key for key, of_key in columns.items() if of_key == "number"])
    return columns


def _check_ranges(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
    for key in keys:
        quantity = quantity_of(key)
        for position, row in enumerate(rows):
            if key in row and not quantity.permits(row[key]):
                raise InputError(
                    f"rows[{position}].{key} must be {quantity.says}, got {shown(row[key])}"
                )


def _type(value: Any) -> str | None:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, str):
        return "text"
    return "number" if is_number(value) else None


def _list(value: Any, place: str) -> Sequence[Any]:
    require(is_list(value), f"{place} must be a list, got {shown(value)}")
    return value


def _seed(value: Any, place: str) -> int:
    good = isinstance(value, int) and not isinstance(value, bool)
    require(good, f"{place} must be an integer, got {shown(value)}")
    return value


def _duration(value: Any, place: str) -> float:
    require(
        is_number(value) and value >= 0,
        f"{place} must be a number of at least 0, got {shown(value)}",
    )
    return float(value)
