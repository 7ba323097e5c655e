"""Jobs and their files, records, tables and figures, and the command `python -m benchmarks`."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.analysis import mean_of, tables_of
from benchmarks.jobs import Cache, Job, JobContext, Outcome, in_order, run_job, run_jobs
from benchmarks.records import folded, read_record, read_records, unfolded
from benchmarks.targets import list_targets
from benchmarks.targets.entries import with_budgets

from benchmarks import speed
from impresslearn import create_backbone
from impresslearn.errors import InputError, TrainingError
from impresslearn.masks import random_bank

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "paper" / "results"


def add(settings, needs, place):
    total = settings["value"] + sum(need.values["total"] for need in needs)
    return Outcome({"total": total}, blob=b"\x00mask")


def test_a_key_says_what_was_done():
    one, two = Job(add, {"value": 1, "seed": 0}), Job(add, {"value": 2})
    jobs = [one, two, Job(add, {"value": 1}, (one,)), Job(add, {"value": 1}, (one, two))]
    jobs += [Job(add, {"value": 1}, (two, one)), Job(run_job, {"value": 2})]
    assert len({job.key for job in jobs}) == len(jobs)
    assert Job(add, {"seed": 0, "value": 1}).key == one.key


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_run_after_their_needs_and_once(tmp_path, workers):
    masks = [Job(add, {"value": value}) for value in range(3)]
    both = Job(add, {"value": 10}, (masks[1], masks[2]))
    top = Job(add, {"value": 100}, (both, masks[0]))
    assert in_order([top])[-1] is top
    cache, ran = Cache(tmp_path), []
    run_jobs([top, both], cache, JobContext(), workers, advance=lambda: ran.append(1))
    assert len(ran) == 5
    assert cache.load(top).values == {"total": 113}
    assert cache.load(top).blob == b"\x00mask"
    run_jobs([top, both], cache, JobContext(), workers, advance=lambda: ran.append(1))
    assert len(ran) == 5
    cache._path(both).write_text("{")  # a damaged file is as good as none
    run_jobs([top, both], cache, JobContext(), workers, advance=lambda: ran.append(1))
    assert len(ran) == 6


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_result_that_is_not_finite_is_not_kept(tmp_path, value):
    job, cache = Job(lambda *_: Outcome({"loss": [value]}), {"seed": 7}), Cache(tmp_path)
    with pytest.raises(TrainingError, match=r"\(no stream, seed 7\): a result is not finite"):
        run_jobs([job], cache, JobContext(), 1)
    assert cache.load(job) is None


def test_targets_are_listed_reproduced_and_reported(tmp_path, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, words)])
        assert main() == 0
        return capsys.readouterr().out

    names = run("list")
    assert all(target.name in names for target in list_targets())
    assert "4 rows, 0 jobs run" in run("reproduce", "parameters", "--out", tmp_path)
    again, kept = (read_record(folder / "parameters.json") for folder in (tmp_path, RESULTS))
    assert again["rows"] == kept["rows"]
    assert "RotatedMNIST" in run("report", tmp_path)


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "reproduce", "overlap", "--workers", "1"]
    command += ["--out", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    while process.poll() is None and len(list(tmp_path.rglob("*.json"))) < 3:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = len(list(tmp_path.rglob("*.json")))
    assert kept >= 3
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert f"16 rows, {22 - kept} jobs run" in done.stdout


@pytest.mark.parametrize("record", read_records(RESULTS), ids=lambda record: record["target"])
def test_committed_records_are_read_and_have_tables(record):
    entries = json.loads(json.dumps(list(folded(record["rows"]))))
    assert list(unfolded(entries)) == record["rows"]
    assert len(tables_of(record)) == len(record["tables"]) > 0


def test_an_interval_needs_five_draws_and_seeds_come_first():
    both = product(range(2), "abcdef")
    rows = [{"seed": seed, "task": task, "accuracy": 0.8 + seed / 100} for seed, task in both]
    two, counted = mean_of(pd.DataFrame(rows), "accuracy")
    assert two.draws == pytest.approx((0.8, 0.81))
    assert (two.half_width, counted) == (None, "2 seeds")
    six, counted = mean_of(pd.DataFrame(rows[:6]), "accuracy")
    assert (six.half_width, counted) == (0.0, "6 tasks")
    table = {"columns": ["seed"], "values": ["accuracy"]}
    (shown,) = tables_of({"rows": rows, "tables": [table]})
    assert shown.rows == (("0", "80.0 ± 0.0%"), ("1", "81.0 ± 0.0%"))


def test_every_way_of_mixing_takes_the_same_step(monkeypatch):
    backbone = create_backbone("lenet_300_100", 10, in_features=20, widths=(9, 5))
    bank, losses = random_bank(backbone.layers, 4), []
    batch = torch.randn(8, 20), torch.arange(8) % 10
    real = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda it: (losses.append(it.item()), real(it)))
    for make in (speed.coefficient_step, speed.loop_step, speed.dense_step):
        make(backbone, bank, batch)()
    assert losses == pytest.approx(losses[:1] * 3, rel=1e-5)
    for make in (speed.plain_step, speed.popup_step, speed.sorted_popup_step):
        make(backbone, batch)()
    assert losses[4] == pytest.approx(losses[5], rel=1e-5)
    with pytest.raises(InputError, match="references"):
        next(speed.measure("mixx"))


def rows(method, setting, size, accuracies):
    named = {"benchmark": "b", "role": "evaluation", "method": method, "setting": setting}
    return [
        {**named, "seed": seed, "task": "t", "accuracy": each, "prediction_bytes": size + seed}
        for seed, each in enumerate(accuracies)
    ]


def test_the_best_that_fits_of_either_side_is_compared_on_the_same_tasks():
    ours = rows("ImpressLearn, a layer", "few", 90, [0.6, 0.7, 0.8])
    ours += rows("ImpressLearn, a weight", "many", 290, [0.8, 0.9, 0.9])
    other = rows("SupSup", "sparse", 298, [0.7, 0.9, 0.8]) + rows("LoRA", "rank 1", 301, [1.0] * 3)
    tuned = [{**row, "role": "development", "accuracy": 1.0} for row in other]
    measured = [*ours, *other, *tuned]
    compared = with_budgets(measured)
    assert compared[: len(measured)] == measured
    found = next(row for row in compared if row.get("budget") == 300)
    assert found["ours"] == "ImpressLearn, a weight: many"
    assert found["other"] == "SupSup: sparse"  # of mean size 299; LoRA's is 302
    assert (found["accuracy"], found["difference"]) == pytest.approx((2.6 / 3, 20 / 3))
