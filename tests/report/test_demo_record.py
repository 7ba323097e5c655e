"""The check of a result record: what is missing or wrong is named in one line."""

import copy

import pytest

from impresslearn.errors import InputError
from impresslearn.report import check_demo_record, tasks_table, write_demo_report
from impresslearn.report.record import SUMMARY_KEYS, TASK_KEYS

PLACES = [
    *[(key,) for key in ("tasks", "summary", "settings", "versions", "coefficients")],
    *[("tasks", 3, key) for key in TASK_KEYS],
    *[("summary", key) for key in SUMMARY_KEYS],
    *[("coefficients", key) for key in ("masks", "layers", "tasks", "values")],
]
WRONG = [
    (("tasks",), [], "at least one task"),
    (("tasks", 0, "role"), "old", "tasks[0].role must be 'basis' or 'new', got 'old'"),
    (("tasks", 1, "accuracy"), 93.0, "tasks[1].accuracy must be a fraction in [0, 1], got 93.0"),
    (("tasks", 1, "accuracy"), None, "tasks[1].accuracy"),
    (("tasks", 1, "supsup_accuracy"), float("nan"), "tasks[1].supsup_accuracy"),
    (("tasks", 1, "bytes"), -1, "tasks[1].bytes"),
    (("summary", "seconds"), "12", "summary.seconds"),
    (("summary", "seconds"), float("inf"), "summary.seconds"),
    (("settings",), [], "settings must be a mapping, got list"),
    (("coefficients", "masks"), ["a", "a"], "coefficients.masks must be distinct"),
    (("coefficients", "masks"), ["a"], "shape (3, 1, 3)"),
    (("coefficients", "values", 0, 0, 0), None, "shape (3, 2, 3)"),
]


def changed(record, place, value=None, *, remove=False):
    changed_record = copy.deepcopy(record)
    part = changed_record
    for key in place[:-1]:
        part = part[key]
    if remove:
        del part[place[-1]]
    else:
        part[place[-1]] = value
    return changed_record


def test_accepts_a_whole_record(record):
    check_demo_record(record)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_names_what_is_missing(record, place, tmp_path):
    broken = changed(record, place, remove=True)
    for render in (tasks_table, lambda r: write_demo_report(r, tmp_path / "report.html")):
        with pytest.raises(InputError, match=f"lacks '{place[-1]}'") as caught:
            render(broken)
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("place", "value", "message"), WRONG)
def test_names_what_is_wrong(record, place, value, message):
    with pytest.raises(InputError) as caught:
        check_demo_record(changed(record, place, value))
    assert message in str(caught.value)


def test_baselines_may_be_absent(record):
    for key in SUMMARY_KEYS:
        record["summary"][key] = None
    for task in record["tasks"]:
        task["supsup_accuracy"] = None
    tasks_table(record)
