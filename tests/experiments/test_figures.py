"""Figures of documents: a wrong one, a lost one and one without a source are found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from impresslearn.errors import InputError
from impresslearn.experiments.figures.check import Document, Findings, check_document, check_folder
from impresslearn.experiments.figures.lookups import Lookup, lookups
from impresslearn.experiments.figures.sources import Sources, read_sources
from impresslearn.experiments.statistics import half_width, holm, paired_test

ROOT = Path(__file__).parents[2]
TEXT = """# Results

Ours reach {ours}% in {size} kB (± {width} points), theirs 80.0%; p = {p}.

| what | accuracy | bytes |
|---|---|---|
| 5 | {ours}% | 1,200 |

- **Apart**: 12.3% and 45 bytes.
"""
RIGHT = {"ours": "90.0", "size": "1.2", "width": "10.6", "p": "0.062"}
SAID = [
    {
        "text": "reach {}% in {} kB (± {} points), theirs {}%; p = {}.",
        "record": "race",
        "from": [
            {"method": "ours", "value": ["accuracy", "bytes_per_task"]},
            {
                "method": "ours",
                "against": {"method": "theirs"},
                "of": "difference interval",
            },
            {"method": "theirs"},
            {"method": "ours", "against": {"method": "theirs"}, "of": "p"},
        ],
    },
    {
        "text": "| 5 | {}% | {} |",
        "from": [{"record": "race", "method": "ours", "value": ["accuracy", "bytes_per_task"]}],
    },
]
ACCURACIES = {"ours": (0.88, 0.90, 0.92), "theirs": (0.82, 0.81, 0.77)}


@pytest.fixture
def root(tmp_path):
    rows = [
        {"method": method, "task": str(task), "accuracy": value, "bytes_per_task": 1200}
        for method, values in ACCURACIES.items()
        for task, value in enumerate(values)
    ]
    record = {
        "format": 1, "target": "race", "scale": "small", "title": "", "claim": "", "data": "",
        "settings": {}, "seeds": [0], "figures": [], "tables": [], "rows": rows, "versions": {},
        "hardware": {}, "seconds": 0, "job_seconds": 0,
    }  # fmt: skip
    (tmp_path / "paper" / "results").mkdir(parents=True)
    (tmp_path / "paper" / "results" / "race.json").write_text(json.dumps(record))
    return tmp_path


def checked(root, changes=(), **other) -> Findings:
    test = paired_test(*ACCURACIES.values())
    right = {**RIGHT, "width": f"{100 * test.half_width:.1f}", "p": f"{test.p_value:.3f}"}
    text = TEXT
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (root / "page.md").write_text(text.format(**right))
    sources = {"file": "page.md", "said": SAID, "not_in_a_record": {"- **Apart**": 2}, **other}
    found = Findings()
    check_document(Sources.model_validate(sources), root, found)
    return found


def test_right_figures_pass(root):
    found = checked(root)
    assert found.faults == []
    assert found.checked == 7
    assert found.exempt == 2


WRONG = {
    "a wrong digit": ("reach {ours}%", "reach 90.1%", ":3: says 90.1, the record 90.0 .race"),
    "one too many digits": ("theirs 80.0%", "theirs 80.01%", r":3: says 80.01, the record 80.00"),
    "a wrong size": ("{size} kB", "1.3 kB", ":3: says 1.3, the record 1.2"),
    "a wrong p-value": ("p = {p}", "p = 0.500", ":3: says 0.500, the record 0.0"),
    "in a table": ("1,200", "1,201", ":7: says 1,201, the record 1,200"),
    "a text that is gone": ("theirs", "others", "page.md: is not there: 'reach"),
    "a text that is there twice": ("| 5 |", "| 5 | 90% | 3 |\n| 5 |", "is there 2 times"),
    "one more with a unit": ("# Results", "It takes 3.5 kB.", "page.md:1: no source for .*3.5 k"),
    "one more in a run": ("# Results", "At 1, 2 and 3%.", "page.md:1: no source for"),
    "one more in a table": ("- **Ap", "| 7 | 8.1 |\n\n- **Ap", "page.md:9: no source for .*8.1"),
    "one more apart": ("45 bytes", "45 bytes, 6%", ":9: 3 figures without a record .* 2 were"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_figures_are_found(root, fault):
    before, after, says = WRONG[fault]
    faults = checked(root, [(before, after)]).faults
    assert any(re.search(says, each) for each in faults), faults


def test_figures_in_code_and_first_cells_need_no_source(root):
    more = "# Results\n\n```\n5% of 3 kB\n```\n\n`7%` and ResNet-18, N = 20.\n"
    assert checked(root, [("# Results", more)]).faults == []


def test_what_is_exempt_must_be_there(root):
    reason = {"text": "# Results", "because": "nothing is there"}
    assert "nothing to exempt" in checked(root, exempt=[reason]).faults[0]


def test_numbers_of_sources_must_fit(root):
    short = [{**SAID[0], "from": SAID[0]["from"][:2]}, SAID[1]]
    assert "5 figures in" in checked(root, said=short).faults[0]


@pytest.mark.parametrize(
    ("lookup", "says"),
    [
        (Lookup("race", {"method": "nobody"}), "no such row"),
        (Lookup("race", {"method": "ours"}, "speed"), "no speed in the row"),
        (Lookup("race", {"method": "ours"}, of="middle"), "of must be one of mean"),
        (Lookup("race", {}, of="p", against={"method": "ours"}), "no pairs"),
        (Lookup("chase", {}), "cannot be read|no such|No such"),
    ],
)
def test_sources_that_cannot_be_used_say_why(root, lookup, says):
    with pytest.raises(InputError, match=says):
        lookup.find(root / "paper" / "results")


def test_lists_stand_for_several_figures():
    described = {"record": "a", "method": ["x", "y"], "of": ["mean", "interval"]}
    found = [(each.where["method"], each.of) for each in lookups(described)]
    assert found == [("x", "mean"), ("x", "interval"), ("y", "mean"), ("y", "interval")]
    with pytest.raises(InputError, match="must name its record"):
        list(lookups({"method": "x"}))


def test_a_file_of_sources_is_checked(tmp_path):
    with pytest.raises(InputError, match="no sources"):
        check_folder(tmp_path)
    for text, says in {"file = ": "no TOML", "": "file", "file = 'a'\nmore = 1": "more"}.items():
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(InputError, match=rf"a\.toml.*{says}"):
            read_sources(tmp_path / "a.toml")


def test_a_pattern_stands_for_documents_without_sources_of_their_own(tmp_path):
    folder = tmp_path / "docs" / "figures"
    folder.mkdir(parents=True)
    (folder / "own.toml").write_text("file = 'docs/own.md'\n[not_in_a_record]\n'It is' = 1\n")
    (folder / "pages.toml").write_text("file = 'docs/**/*.md'\n")
    for page, text in {"own.md": "It is 5% here.", "guide/other.md": "Here 7%."}.items():
        (tmp_path / "docs" / page).parent.mkdir(exist_ok=True)
        (tmp_path / "docs" / page).write_text(text)
    found = check_folder(folder)
    assert found.faults == ["docs/guide/other.md:1: no source for 'Here 7%.'"]
    assert found.exempt == 1


def test_paired_t_test_interval_and_holm():
    """Student's sleep data, as R's `t.test(extra ~ group, paired = TRUE)` tells of it."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    test = paired_test(first, second)
    assert test.difference == pytest.approx(-1.58)
    assert test.p_value == pytest.approx(0.002833, abs=1e-6)
    assert test.difference + test.half_width == pytest.approx(-0.7001142, abs=1e-6)
    assert paired_test([1.0, 2.0], [1.0, 2.0]).p_value == 1
    assert paired_test([2.0, 3.0], [1.0, 2.0]).p_value == 0
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    for bad in (lambda: half_width([1.0]), lambda: paired_test([1.0, 2.0], [1.0])):
        with pytest.raises(InputError):
            bad()


def test_places_are_lines():
    document = Document("a.md", "one\ntwo 5%\n")
    assert [document.place(start) for start, _ in document.spans()] == ["a.md:2"]


def test_a_wrong_figure_fails_the_command(root, tmp_path):
    checked(root, [("reach {ours}%", "reach 91.0%")])
    folder = tmp_path / "docs" / "figures"
    folder.mkdir(parents=True)
    (folder / "page.toml").write_text(
        'file = "page.md"\n[[said]]\ntext = "reach {}%"\n'
        'from = [{ record = "race", method = "ours" }]\n'
    )
    command = [sys.executable, "-m", "impresslearn.experiments.figures", str(folder)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 1
    assert "page.md:3: says 91.0, the record 90.0" in told.stdout
