"""Reads and writes records, one JSON file per target, with these keys:

- target, scale, title, claim, data, settings, seeds: what was run.
- rows: [{method, task, seed, accuracy, …}]. An entry with lists stands for one row per value.
- figures, tables: how `benchmarks.report` shows the rows.
- code, versions, hardware, seconds (of the run), job_seconds (of all its jobs).
findings.json has the conclusions, written by hand: {target: {scale: text}}.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

import impresslearn
from impresslearn.errors import InputError
from impresslearn.files import write_file

FINDINGS = "findings.json"
PACKAGES = ("impresslearn", "torch", "numpy", "numba", "scipy", "torchvision", "peft")
KEYS = ("target", "scale", "title", "claim", "data", "rows", "figures", "tables")
# Columns, besides fractions, that may differ between the rows of one entry.
MEASURED = ("task", "bytes_per_task", "prediction_bytes")
Record = dict[str, Any]
Row = dict[str, Any]


def read_record(path: Path) -> Record:
    """The record in a file, with one row per measurement.

    Raises InputError, which names the file, if it cannot be read or lacks a key.
    """
    record = _read_json(path)
    if not isinstance(record, dict) or any(key not in record for key in KEYS):
        raise InputError(f"{path}: a record has {', '.join(KEYS)}")
    record["rows"] = list(unfolded(record["rows"]))
    return record


def read_records(path: Path) -> list[Record]:
    """All records of a folder, sorted by name, or the record in a file, with their findings.

    Raises InputError without a record.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    files = [file for file in files if file.name != FINDINGS]
    if not files:
        raise InputError(f"{path} has no records (*.json)")
    folder = files[0].parent
    findings = _read_json(folder / FINDINGS) if (folder / FINDINGS).exists() else {}
    records = []
    for file in files:
        record = read_record(file)
        record["finding"] = findings.get(record["target"], {}).get(record["scale"], "")
        records.append(record)
    return records


def write_record(content: Mapping[str, Any], path: Path, device: str, job_seconds: float) -> None:
    """Writes a record in one step, with the code, versions and hardware of this process.

    - content: all other keys of the record
    """
    record = {**content, "code": _code(), "versions": _versions(), "hardware": _hardware(device)}
    record["job_seconds"] = round(job_seconds, 1)
    entries = list(folded(record.pop("rows")))
    head = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    lines = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries]
    rows = ",\n  ".join(lines)
    write_file(path, f'{head[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n', folders=True)


def folded(rows: Sequence[Row]) -> Iterator[Row]:
    """Entries for rows: consecutive rows that differ only in measured values become lists."""
    for _, group in groupby(rows, _settings_of):
        same, entry = list(group), {}
        for key, first in same[0].items():
            values = [row[key] for row in same]
            entry[key] = first if values == [first] * len(same) else values
        yield from same if entry == same[0] else [entry]


def unfolded(entries: Sequence[Row]) -> Iterator[Row]:
    """One row per measurement. Raises ValueError if lists of an entry differ in length."""
    for entry in entries:
        lists = {key: value for key, value in entry.items() if isinstance(value, list)}
        if not lists:
            yield entry
        for values in zip(*lists.values(), strict=True):
            yield {**entry, **dict(zip(lists, values, strict=True))}


def _settings_of(row: Row) -> list[tuple[str, Any]]:
    """The columns and values that all rows of one entry have in common."""
    common = []
    for key, value in row.items():
        varies = key in MEASURED or isinstance(value, float)
        common.append((key, None if varies else (type(value), value)))
    return common


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def _code() -> dict[str, Any]:
    """The commit, and whether the package's files differ from it; None outside a checkout."""
    git, outputs = ["git", "-C", str(Path(impresslearn.__file__).parent)], []
    try:
        for words in (["rev-parse", "HEAD"], ["status", "--short", "."]):
            done = subprocess.run([*git, *words], capture_output=True, timeout=20, check=True)
            outputs.append(done.stdout.decode().strip())
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "uncommitted": None}
    return {"commit": outputs[0], "uncommitted": bool(outputs[1])}


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _hardware(device: str) -> dict[str, Any]:
    processor = platform.processor()
    with suppress(OSError):  # only Linux has this file
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    hardware = {"machine": platform.machine(), "processor": processor, "cores": os.cpu_count()}
    if device.startswith("cuda"):
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return {**hardware, "threads": 1}
