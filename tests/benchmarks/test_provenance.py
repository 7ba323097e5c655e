"""A record says what it was measured with; a job's key says what code it stands for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.code import code_hash, code_of_all, source_files
from benchmarks.jobs import Job, Outcome, Place, job_function, run_job
from benchmarks.provenance import checkout_of, processor_name
from benchmarks.record import make_record
from benchmarks.report.records import read_records
from benchmarks.work import evaluation, hybrid, methods, training

from benchmarks import code, provenance
from impresslearn.errors import InputError

FUNCTIONS = [
    each
    for module in (custom, evaluation, hybrid, methods, training)
    for each in vars(module).values()
    if hasattr(each, "kind") and each.__module__ == module.__name__
]
SOURCE = '''"""A module."""
from impresslearn.masks.sparsity import ones_per_layer
SIZE = 3
"""How many."""


class Kept:
    """A class."""

    def twice(self):
        """Two of them."""
        return f"{SIZE}", 2 * SIZE  # a comment


def work():
    "One line."
    return Kept().twice()
'''
SAME = {
    "a docstring": ("Two of them.", "Both of them."),
    "a docstring that is gone": ('        """Two of them."""\n', ""),
    "a constant's docstring": ("How many.", "The number."),
    "a comment": ("# a comment", ""),
    "layout": ("SIZE = 3", "SIZE    =    (\n 3\n)"),
}
OTHER = {
    "a number": ("2 * SIZE", "3 * SIZE"),
    "a text that is used": ('f"{SIZE}"', 'f"{SIZE}."'),
    "a name": ("twice", "double"),
    "an import": ("masks.sparsity import ones_per_layer", "masks.codec import encode_mask"),
}


@job_function("here")
def here(settings, needs, place):
    return Outcome({"value": 1})


def hash_of(path: Path, source: str) -> str:
    path.write_text(source)
    for cached in (code._hash_of, code._source):
        cached.cache_clear()
    namespace: dict = {}
    exec(compile(source, str(path), "exec"), namespace)
    return code_hash(namespace["work"])


@pytest.mark.parametrize("change", [*SAME, *OTHER])
def test_code_changes_the_hash_and_words_do_not(tmp_path, change):
    before, after = (SAME | OTHER)[change]
    assert before in SOURCE
    first = hash_of(tmp_path / "jobs.py", SOURCE)
    second = hash_of(tmp_path / "jobs.py", SOURCE.replace(before, after))
    assert (first == second) == (change in SAME)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the package, of which `here` is taken to import the masks' training."""
    root = tmp_path / "impresslearn"
    shutil.copytree(code.ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "ROOT", root)
    files = code._files_of, code._source, code._hash_of
    for cached in files:
        cached.cache_clear()
    yield root
    for cached in files:
        cached.cache_clear()


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("masks/edge_popup.py", True),
        ("kernels/tables.py", True),  # imported by a name that is put together
        ("streams/mnist.py", True),
        ("report/tables.py", False),
        ("cli/learn.py", False),
        ("store/schema.py", False),
        ("methods/adapters.py", False),  # of other jobs
        ("experiments/targets/frontier.py", False),
    ],
)
def test_a_mask_depends_on_what_trains_it(copied, file, changes):
    def found():
        code._source.cache_clear(), code._hash_of.cache_clear()
        return code._hash_of(copied / "experiments/work/training.py")

    before, path = found(), copied / file
    path.write_text(path.read_text() + "\n# a comment\n")
    assert found() == before
    path.write_text(path.read_text() + "\nANOTHER = 1\n")
    assert (found() != before) == changes


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.kind)
def test_jobs_import_neither_reports_nor_commands(function):
    path = Path(function.__code__.co_filename)
    imported = code._source(path).imported
    assert not {name.split(".")[0] for name in imported} & {"cli", "report", "store", "export"}
    units = {file.relative_to(code.ROOT).parts[0] for file in source_files(path)}
    assert {"masks", "kernels", "networks", "data", "streams"} <= units
    assert not units & {"cli", "report", "serve", "store", "hub"}


def test_a_key_holds_the_code(monkeypatch):
    job = Job(here, {"seed": 1})
    key = job.key
    assert Job(here, {"seed": 1}).key == key
    monkeypatch.setattr("benchmarks.jobs.code_hash", lambda _: "other")
    assert Job(here, {"seed": 1}).key != key
    with pytest.raises(InputError, match=r"here job .*the code here is not the one that asked"):
        run_job(job, (), Place())


def test_a_hash_is_cheap():
    for cached in (code._hash_of, code._source, code._files_of):
        cached.cache_clear()
    started = time.process_time()
    code_hash(training.train_mask)
    assert time.process_time() - started < 2, "0.17 s on the machine it was written on"
    started = time.process_time()
    for _ in range(1000):
        code_hash(training.train_mask)
    assert time.process_time() - started < 0.1


def test_code_without_a_file_says_so():
    namespace: dict = {}
    exec(compile("def work(): pass", "<nowhere>", "exec"), namespace)
    with pytest.raises(InputError, match="the code of a job must be in a file, <nowhere>"):
        code_hash(namespace["work"])
    assert code_of_all([]) is None
    assert code_of_all([here, training.train_mask]) == code_of_all([training.learn_task, here])


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit_and_changes_of_a_checkout(tmp_path):
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    assert checkout_of(package) == (None, None)
    git(tmp_path, "init")
    assert checkout_of(package) == (None, None), "a package that lies in somebody's checkout"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "a")
    commit, changed = checkout_of(package)
    assert (len(commit), changed) == (40, False)
    (tmp_path / "notes").write_text("beside the package")
    assert checkout_of(package) == (commit, False)
    (package / "__init__.py").write_text("a = 1")
    assert checkout_of(package) == (commit, True)


def test_no_git_is_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert checkout_of(provenance.ROOT) == (None, None)


def test_a_record_says_what_it_was_measured_with(tmp_path):
    content = {
        "target": "mine", "scale": "smoke", "title": "", "claim": "", "data": "", "settings": {},
        "seeds": [0, 3], "figures": [], "tables": [], "rows": [{"method": "a", "accuracy": 0.5}],
    }  # fmt: skip
    record = make_record(content, "cpu", 1.0, 2.0, threads=1, code="abc")
    assert set(record["code"]) == {"commit", "uncommitted", "hash"}
    assert record["code"]["hash"] == "abc"
    assert record["hardware"]["threads"] == 1
    assert record["hardware"]["processor"] == processor_name()
    assert record["versions"]["impresslearn"]
    older = {key: value for key, value in record.items() if key != "code"}
    del older["hardware"]["threads"], older["hardware"]["processor"]
    for each in (record, older):
        (tmp_path / "mine.json").write_text(json.dumps(each))
        assert read_records(tmp_path)[0].seeds == (0, 3)


def test_results_hold_no_finding():
    folder = Path(__file__).parents[2] / "paper" / "results"
    for file in folder.glob("*.json"):
        assert "finding" not in json.loads(file.read_text()), file.name


def test_an_installed_package_gives_the_same_hash(copied):
    """A wheel holds the same files, elsewhere."""
    elsewhere = code._hash_of(copied / "experiments/work/training.py")
    assert (
        elsewhere
        == subprocess.run(
            [
                sys.executable,
                "-c",
                "from benchmarks.work.training import train_mask\n"
                "from benchmarks.code import code_hash\nprint(code_hash(train_mask))",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
