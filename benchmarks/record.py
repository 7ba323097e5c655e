"""A run's result as one JSON file: every measurement as a row, and what it was measured with.

format, target, scale, title, claim, data, settings, seeds
rows       [{method, task, seed, accuracy, bytes_per_task, …}], measured and derived
figures, tables    how `impresslearn report` shows the rows
code       commit, uncommitted (changes of the package), hash (of what the jobs depend on)
versions, hardware (processor, threads of a job, …), seconds (this run), job_seconds (of all jobs,
           cached ones included)
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.provenance import code_facts, processor_name
from benchmarks.report.records import FINDINGS, read_findings, read_json, with_kept
from benchmarks.report.rows import folded
from impresslearn.errors import InputError
from impresslearn.files import write_file

FORMAT = 2
PACKAGES = ("impresslearn", "torch", "numpy", "numba", "scipy", "torchvision", "peft")


def make_record(
    content: Mapping[str, Any],
    device: str,
    seconds: float,
    job_seconds: float,
    *,
    threads: int,
    code: str | None = None,
) -> dict[str, Any]:
    """The record of a finished run.

    content: from target to seeds, figures, tables and rows; threads: of each job; code: the hash of
    what the jobs depend on, None where there are none.
    """
    hardware: dict[str, Any]
    versions, hardware = {"python": platform.python_version()}, {"machine": platform.machine()}
    hardware["processor"] = processor_name()
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    return {
        "format": FORMAT,
        **content,
        "code": code_facts(code),
        "versions": versions,
        "hardware": {**hardware, "cores": os.cpu_count(), "threads": threads, **gpu},
        "seconds": round(seconds, 1),
        "job_seconds": round(job_seconds, 1),
    }


def check_folder(folder: Path) -> None:
    """Makes the folder that records will go to. Raises InputError where it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="."):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}") from None


def write_record(record: Mapping[str, Any], path: Path, *, fold: bool = False) -> None:
    """Writes a record, whole or not at all; a row a line. Raises InputError where it cannot.

    fold: rows that differ in what was measured share a line, see `benchmarks.report.rows`.
    A finding that an older record kept in the same file moves to the file of findings.
    """
    before = None
    with suppress(InputError):  # there is none, or it is no record
        before = read_json(path)
    if before is not None:
        findings = read_findings(path.parent)
        kept = with_kept(findings, before)
        if kept != findings:
            text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
            write_file(path.parent / FINDINGS, text)
    body = {key: value for key, value in record.items() if key != "rows"}
    head = json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False)
    lines = folded(record["rows"]) if fold else record["rows"]
    rows = ",\n  ".join(json.dumps(r, ensure_ascii=False, allow_nan=False) for r in lines)
    write_file(path, f'{head[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n', folders=True)
