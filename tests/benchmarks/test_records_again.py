"""Rows of two committed records are learned again with today's code."""

from pathlib import Path
from statistics import fmean

import pytest
from benchmarks.jobs import Cache, JobContext, in_order, run_jobs
from benchmarks.records import read_record
from benchmarks.targets import find_target

RECORDS = Path(__file__).parents[2] / "paper" / "results"
ROWS = {
    "clinc150": {"method": "ImpressLearn, readout", "setting": "the preset"},
    "image-network": {"benchmark": "image-network-resnet20", "method": "ImpressLearn, few_labels"},
}


def chosen(rows, target):
    return [row for row in rows if ROWS[target].items() <= row.items()]


@pytest.mark.nightly
@pytest.mark.parametrize("target", ROWS)
def test_a_record_is_true_of_todays_code(target, records_root, tmp_path):
    plan, cache = find_target(target).plan("small"), Cache(tmp_path)
    planned = [each for each in plan.planned if ROWS[target].items() <= each.columns.items()]
    jobs = in_order(each.job for each in planned)
    run_jobs(jobs, cache, JobContext(str(records_root)), 2, "loky", lambda *_: None)
    rows = []
    for each in planned:
        rows += each.rows(cache.load(each.job).values)
    again = chosen(plan.finish(rows), target)
    recorded = chosen(read_record(RECORDS / f"{target}.json")["rows"], target)
    assert len(again) == len(recorded) > 0
    # Other processors round otherwise: half a point, and two bytes in a hundred.
    for key, tolerance in (("accuracy", {"abs": 0.005}), ("bytes_per_task", {"rel": 0.02})):
        before, now = (fmean(row[key] for row in rows) for rows in (recorded, again))
        assert now == pytest.approx(before, **tolerance), key
