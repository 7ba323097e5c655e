"""Runs a target's missing rows, each kept as it comes, over as many days and machines as it takes.

    python paper/resume.py frontier --data DIR [--cache DIR] [--where role=evaluation seed=10]
    python paper/resume.py frontier --finish

`impresslearn reproduce` wants its cache for as long as a target runs. This keeps the finished rows
in `paper/results/partial/TARGET.json` instead, each with the code and the processor that ran it; a
cache is needed only for what jobs share, such as masks. Start it as often as there are cores: runs
divide the rows among themselves. --finish writes the record from the rows when all are there.

A row is known by its columns, its job's settings and those of the jobs that this one needs. Code is
not part of that: whoever changes what a method computes takes its rows out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import filelock

from impresslearn.experiments.cache import Cache, work_on
from impresslearn.experiments.code import code_of_all
from impresslearn.experiments.jobs import Job, Outcome, Place, in_order
from impresslearn.experiments.provenance import code_facts, processor_name
from impresslearn.experiments.record import make_record, write_record
from impresslearn.experiments.targets import Plan, find_target
from impresslearn.experiments.targets.plan import Planned

RESULTS = Path(__file__).parent / "results"


def identity(planned: Planned) -> str:
    """A row's columns and what its job does, without code, as 16 hex digits."""
    text = json.dumps([dict(planned.columns), _work(planned.job)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _work(job: Job) -> list[Any]:
    return [job.kind, dict(job.settings), [_work(need) for need in job.needs]]


class Partial:
    """The finished rows of a target, in one file that several processes share."""

    def __init__(self, target: str, out: Path) -> None:
        self.path = out / "partial" / f"{target}.json"
        name = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]
        self.lock = filelock.FileLock(Path(tempfile.gettempdir()) / f"impresslearn-{name}.lock")

    def rows(self) -> dict[str, dict[str, Any]]:
        """Job -> row."""
        kept = json.loads(self.path.read_text("utf-8"))["rows"] if self.path.exists() else []
        return {row["job"]: row for row in kept}

    def add(self, row: dict[str, Any], order: list[str]) -> None:
        """Keeps a row, in the order of the plan."""
        with self.lock:
            rows = self.rows() | {row["job"]: row}
            self.write([rows[job] for job in order if job in rows])

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Replaces the file in one step."""
        lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
        fresh = self.path.with_suffix(".new")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(f'{{"rows": [\n  {lines}\n]}}\n', "utf-8")
        fresh.replace(self.path)


def run(partial: Partial, plan: Plan, place: Place, cache: Cache, where: dict[str, str]) -> None:
    """Works off the rows that nobody has done or is about to do."""
    order = [identity(each) for each in plan.planned]
    for planned, job in zip(plan.planned, order, strict=True):
        if any(str(planned.columns.get(key)) != value for key, value in where.items()):
            continue
        claim = filelock.FileLock(f"{partial.lock.lock_file}.{job}")
        try:
            with claim.acquire(timeout=0):
                if job in partial.rows():
                    continue
                for each in in_order([planned.job]):
                    outcome = work_on(each, cache, place)
                row = planned.row(outcome.values)
                partial.add({**_facts(planned, outcome), "job": job, **row}, order)
                print(json.dumps(row, ensure_ascii=False), flush=True)
        except filelock.Timeout:
            continue


def _facts(planned: Planned, outcome: Outcome) -> dict[str, Any]:
    """What ran a row: seconds, code and processor."""
    code = code_of_all(each.function for each in in_order([planned.job]))
    return {"seconds": outcome.seconds, "processor": processor_name(), **code_facts(code)}


def finish(partial: Partial, target: str, scale: str, out: Path) -> None:
    """Writes the record. Ends with a line where rows are missing."""
    found, entry = partial.rows(), find_target(target)
    plan = entry.plan(scale)
    kept = [found.get(identity(each)) for each in plan.planned]
    rows = [row for row in kept if row is not None]
    if len(rows) < len(kept):
        raise SystemExit(f"{len(kept) - len(rows)} of {len(kept)} rows of {target} are missing")
    plain = [_of_target(row, each) for row, each in zip(rows, plan.planned, strict=True)]
    content = {
        "target": target,
        "scale": scale,
        "title": entry.title,
        "claim": entry.claim,
        "data": plan.data,
        "settings": dict(plan.settings),
        "seeds": list(plan.seeds),
        "figures": list(plan.figures),
        "tables": list(plan.tables),
        "rows": plain if plan.finish is None else plan.finish(plain),
    }
    spent = sum(row["seconds"] for row in rows)
    record = make_record(content, "cpu", spent, spent, threads=1)
    changed = any(row.get("uncommitted") for row in rows)
    hashes, commits = _all_of(rows, "hash"), _all_of(rows, "commit")
    record["code"] = {"commit": commits, "uncommitted": changed, "hash": hashes}
    record["hardware"]["processor"] = _all_of(rows, "processor")
    write_record(record, out / f"{target}.json", fold=True)


def _all_of(rows: list[dict[str, Any]], key: str) -> str | None:
    """All that rows say under a key; None where none does."""
    return ", ".join(sorted({row[key] for row in rows if row.get(key)})) or None


def _of_target(row: dict[str, Any], planned: Planned) -> dict[str, Any]:
    """A row without what is kept of its job, but for the commit."""
    kept = {"job", "seconds", "processor", "uncommitted", "hash"} - set(planned.values)
    return {key: value for key, value in row.items() if key not in kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("target")
    parser.add_argument("--data", default="data")
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "impresslearn-cache"))
    parser.add_argument("--where", nargs="*", default=[], metavar="COLUMN=VALUE")
    parser.add_argument("--finish", action="store_true")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--out", default=RESULTS, type=Path)
    given = parser.parse_args()
    partial = Partial(given.target, given.out)
    if given.finish:
        finish(partial, given.target, given.scale, given.out)
        return
    plan = find_target(given.target).plan(given.scale)
    where = dict(each.split("=", 1) for each in given.where)
    run(partial, plan, Place(data=given.data), Cache(given.cache), where)


if __name__ == "__main__":
    main()
