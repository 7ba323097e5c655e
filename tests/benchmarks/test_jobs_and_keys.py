"""Jobs, their keys, and the order in which they are done."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from benchmarks.executors import run_jobs
from benchmarks.jobs import Job, Outcome, Place, in_order, job_function, run_job
from benchmarks.work.evaluation import judge_foreign_mask
from benchmarks.work.training import train_mask

from impresslearn.errors import InputError, MissingDataError, TrainingError

STREAM = {"name": "rotated_mnist", "tasks": 30, "seed": 0}
BACKBONE = {"name": "lenet_300_100", "num_classes": 10, "init": "signed_constant", "seed": 0}
RECIPE = {"lr": 0.01, "epochs": 2, "batch_size": 128}
WHERE = {"stream": STREAM, "task": 3, "backbone": BACKBONE}
COMMON = {**WHERE, "recipe": RECIPE, "seed": 0}
SPARSE = {**COMMON, "allocation": "erdos_renyi", "sparsity": 0.9}
MASK = Job(train_mask, {**SPARSE, "rule": "magnitude"})
SEARCH = {**WHERE, "position": 0, "method": "alpha", "inputs": 128}
RAISED = {
    "os": OSError(5, "Input/output error", "images.gz"),
    "nan": TrainingError("loss"),
    "data": MissingDataError("no MNIST"),
}
UNUSABLE = {"number": float("nan"), "list": [1.0, float("inf")], "inside": {"a": -float("inf")}}


@job_function("number")
def number(settings, needs, place):
    if settings["value"] in RAISED:
        raise RAISED[settings["value"]]
    return Outcome({"task": "a", "value": UNUSABLE.get(settings["value"], settings["value"])})


def test_a_key_says_what_was_done():
    same = Job(train_mask, dict(reversed(MASK.settings.items())))
    pair = (Job(number, {"value": 1}), Job(number, {"value": 2}))
    digits = {**MASK.settings, "stream": {"name": "rotated_digits", "tasks": 14}}
    different = [
        MASK,
        Job(train_mask, {**MASK.settings, "seed": 1}),
        Job(train_mask, MASK.settings, (MASK,)),
        Job(judge_foreign_mask, MASK.settings),
        Job(number, {"value": 3}, pair),
        Job(number, {"value": 3}, pair[::-1]),
        Job(train_mask, digits),
    ]
    keys = {job.key for job in different}
    assert same.key == MASK.key
    assert len(keys) == len(different)


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        *((each, TrainingError, r"{} its value must be fini") for each in UNUSABLE),
        ("nan", TrainingError, "{} loss"),
        ("os", InputError, "{} .*Input/output error: 'images.gz'"),
        ("data", MissingDataError, "^no MNIST"),
    ],
)
def test_errors_name_the_job_where_that_helps(value, kind, says):
    job = Job(number, {"value": value, "seed": 7})
    with pytest.raises(kind, match=says.format(rf"^number job {job.key[:8]} \(seed 7\):")):
        run_job(job, (), Place())


def test_needed_jobs_come_first_and_once():
    def base():
        return Job(number, {"value": 0})

    left, right = Job(number, {"value": 1}, (base(),)), Job(number, {"value": 2}, (base(),))
    top = Job(number, {"value": 3}, (left, right, left))
    found = [job.settings["value"] for job in in_order([top, left, base(), top])]
    assert found == [0, 1, 2, 3]
    chain = base()
    for value in range(1, 5000):  # longer than Python's stack is deep
        chain = Job(number, {"value": value}, (chain,))
    assert [job.settings["value"] for job in in_order([chain])] == list(range(5000))


class Notes:
    """An executor and its cache: does nothing, in no time, and notes in which order."""

    def __init__(self, capacity, done=()):
        self.capacity, self.taken = capacity, []
        self.kept = {job.key: Outcome({}, None, 0.0) for job in done}

    def __contains__(self, job):
        return job.key in self.kept

    def get(self, job):
        return self.kept.get(job.key)

    def submit(self, job, cache, place):
        assert all(need in self for need in job.needs), "a need is not done"
        assert job not in self, "done twice"
        self.taken.append(job.settings["value"])
        self.kept[job.key] = Outcome({}, None, 0.0)
        future = Future()
        future.set_result(self.kept[job.key])
        return future


@pytest.mark.parametrize(("capacity", "order"), [(1, [0, 1, 2, 3, 9, 5]), (3, [0, 1, 2, 3, 5, 9])])
def test_the_first_job_whose_needs_are_done_is_next(capacity, order):
    first = [Job(number, {"value": value}) for value in range(4)]
    user = Job(number, {"value": 9}, (first[0], first[0], first[3]))
    notes, reported = Notes(capacity), []
    jobs = [*first, user, Job(number, {"value": 5})]
    outcomes = run_jobs(jobs, notes, Place(), notes, lambda job, _: reported.append(job))
    assert notes.taken == order
    assert len(outcomes) == len(reported) == len(jobs)
    run_jobs(jobs, notes, Place(), notes)
    assert notes.taken == order, "what is kept is not done again"
    kept = Notes(capacity, first)
    run_jobs([user], kept, Place(), kept)
    assert kept.taken == [9]
