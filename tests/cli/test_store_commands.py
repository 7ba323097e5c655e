"""`learn`, `predict`, `infer` and `store …`: from data files to a store and out of it again."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import impresslearn as il
from impresslearn.cli.app import app
from impresslearn.cli.data_files import reader_for
from impresslearn.cli.learn_options import data_sets_in
from impresslearn.cli.new_store import new_preprocessing
from impresslearn.data.files import FileReader
from impresslearn.errors import InputError, MissingDataError, StoreError, UnknownTaskError
from impresslearn.tables import size
from toys import blobs, quick_learner

QUICK = ("--epochs", "0", "--min-steps", "60", "--batch-size", "32")
NEW = ("--set", "widths=[24,12]", "--sparsity", "0.7", *QUICK)


def write(path, seed, part=slice(0, 96), names=None):
    inputs, labels = blobs(seed, count=160)
    labels = labels if names is None else np.array(names)[labels]
    np.savez(path, inputs=inputs[part].numpy(), labels=np.asarray(labels)[part])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """basis/a.npz, tasks/{b,c,d}.npz, test/{a,b}.npz, and inputs of b with their labels."""
    root = tmp_path_factory.mktemp("data")
    for name in ("basis", "tasks", "test"):
        (root / name).mkdir()
    write(root / "basis" / "a.npz", 0)
    for seed, name in enumerate("bcd", 1):
        write(root / "tasks" / f"{name}.npz", seed)
    for seed, name in enumerate("ab"):
        write(root / "test" / f"{name}.npz", seed, slice(96, None))
    inputs, labels = blobs(1, count=160)
    np.save(root / "new.npy", inputs[96:].numpy())
    (root / "new.txt").write_text("\n".join(map(str, labels[96:].tolist())))
    return root


@pytest.fixture(scope="module")
def ready(folder):
    """A store with the basis task a and the task b."""
    path = folder / "ready.impress"
    run("learn", path, "--tasks", folder / "basis", "--basis", "--output-scale", *NEW)
    how = ("--random-masks", 12, *QUICK, "--min-steps", 200)
    run("learn", path, "--task", "b", "--data", folder / "tasks" / "b.npz", *how)
    return path


@pytest.fixture
def store(ready, tmp_path):
    """A copy that a test may change."""
    return shutil.copy(ready, tmp_path / "s.impress")


def invoke(*arguments, **settings):
    return CliRunner().invoke(app, [str(each) for each in arguments], **settings)


def run(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def run_json(*arguments):
    return json.loads(run(*arguments, "--json"))


def error_of(*arguments, kind=InputError):
    result = invoke(*arguments)
    assert isinstance(result.exception, kind), (result.output, result.exception)
    assert result.stdout == ""
    return str(result.exception)


def npz(path):
    with np.load(path) as archive:
        return torch.from_numpy(archive["inputs"]), archive["labels"]


def process(*arguments, **settings):
    return subprocess.Popen(
        [sys.executable, "-m", "impresslearn", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


# Learning


def test_learning_creates_a_store_and_learns_each_task_once(folder, tmp_path):
    path, tasks = tmp_path / "s.impress", ("--tasks", folder / "tasks", "--test", folder / "test")
    first = run("learn", path, *tasks, "--random-masks", 4, *NEW).splitlines()
    assert first[0] == f"created {path}: lenet_300_100 for 16 inputs, 3 outputs, 708 weights"
    said = [line.split(" in ")[0] for line in first[1:-1]]
    assert said == [f"{name}: learned" for name in "bcd"]
    summary = r"3 learned; \d+ B in all, \d+ B to \d+ B a task, accuracy [\d.]+% on 1 with tests"
    assert re.fullmatch(summary, first[-1])
    assert "accuracy" in first[1]
    assert "accuracy" not in first[2]
    again = run_json("learn", path, *tasks, "--random-masks", 4, *NEW)
    assert again["created"] is False
    assert [task["status"] for task in again["tasks"]] == ["already learned"] * 3
    assert again["tasks"][0]["accuracy"] > 0.5
    pairs = (word for n in "bc" for word in ("--data", f"{n}={folder / 'tasks' / n}.npz"))
    several = run_json("learn", path, *pairs, "--test", folder / "test", *NEW)
    assert [each["accuracy"] for each in several["tasks"]] == [again["tasks"][0]["accuracy"], None]
    learner = il.load(path)
    assert (len(learner.bank_), list(learner.tasks_)) == (4, ["b", "c", "d"])


def test_tasks_that_cannot_be_learned_are_told_and_the_others_learned(folder, tmp_path):
    tasks, path = shutil.copytree(folder / "tasks", tmp_path / "tasks"), tmp_path / "s.impress"
    (tasks / "broken.npz").write_bytes(b"PK but no archive")
    command = ("learn", path, "--tasks", tasks, "--random-masks", 4, *NEW)
    result = invoke(*command)
    assert "broken: " in result.stderr
    assert str(result.exception) == "1 of 4 tasks failed: broken"
    assert result.stdout.splitlines()[-1].startswith("3 learned, 1 failed; ")
    write(tasks / "b.npz", 9)  # other data under the name of a task
    write(tasks / "broken.npz", 8)
    result = invoke(*command, "--json")
    told = {each["task"]: each for each in json.loads(result.stdout)["tasks"]}
    assert {name: each["status"] for name, each in told.items()} == {
        "b": "failed",
        "broken": "learned",
        "c": "already learned",
        "d": "already learned",
    }
    assert "learned from other data" in told["b"]["error"]
    assert str(result.exception) == "1 of 4 tasks failed: b"


def test_features_are_learned_from_the_basis_tasks_that_could_be_read(folder, tmp_path):
    tasks, path = shutil.copytree(folder / "tasks", tmp_path / "tasks"), tmp_path / "s.impress"
    (tasks / "broken.npz").write_bytes(b"PK but no archive")
    how = ("--basis", "--features", "--preset", "few_labels", *NEW)
    assert str(invoke("learn", path, "--tasks", tasks, *how).exception).startswith("1 of 4 tasks")
    told = run_json("store", "show", path)
    assert (told["projections"], told["projections_bytes"] > 1000) == (1, True)
    assert f"1 projection ({size(told['projections_bytes'])})" in run("store", "show", path)


@pytest.mark.nightly
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_list_carries_on(folder, tmp_path, ending):
    path = tmp_path / "s.impress"
    command = ("learn", path, "--tasks", folder / "tasks", "--random-masks", 4, *NEW)
    running = process(*command, "--min-steps", "600")
    next(line for line in running.stdout if line.startswith("b: learned"))
    running.send_signal(ending)
    _, remarks = running.communicate(timeout=60)
    if ending == signal.SIGINT:
        assert running.returncode == 130
        kept = f"1 of 3 tasks are kept in {path}; run the same command again to carry on\n"
        assert remarks.endswith(kept)  # on a slow machine lines of progress come before
    again = run_json(*command)["tasks"]
    assert [task["status"] for task in again] == ["already learned", "learned", "learned"]
    assert run_json("store", "verify", path)["sound"]


def test_settings_of_the_store_hold_for_later_tasks(folder, store):
    data = f"d={folder / 'tasks/d.npz'}"
    for option in (
        *("--sparsity=0.5", "--seed=1", "--classes=5", "--backbone=resnet18", "--norm=group"),
        *("--granularity=unit", "--no-output-scale", "--set=widths=[24,13]"),
        "--preset=paper_lenet",
    ):
        assert "was created with" in error_of("learn", store, "--data", data, option)
    same = ("--preset", "default", "--sparsity", 0.7)
    run("learn", store, "--data", data, *same, "--lr", 0.01, *QUICK)
    assert il.load(store).tasks_["d"].history["recipe"]["lr"] == 0.01


def test_a_name_with_other_data_or_another_role_is_refused(folder, store):
    other = f"b={folder / 'tasks/c.npz'}"
    assert "learned from other data" in error_of("learn", store, "--data", other)
    basis = ("--data", f"a={folder / 'basis/a.npz'}")
    (found,) = run_json("learn", store, *basis)["tasks"]
    assert (found["status"], found["role"]) == ("already learned", "basis")
    learned = ("--data", f"b={folder / 'tasks/b.npz'}", "--basis")
    assert "as a learned task, not as a basis one" in error_of("learn", store, *learned)
    with il.open_store(store, progress=False) as learner:
        learner.learn_task("mine", blobs(7))
    mine = f"mine={folder / 'tasks/c.npz'}"
    assert "does not tell from which data" in error_of("learn", store, "--data", mine)


def test_a_page_of_a_store(store):
    assert run_json("store", "report", store) == {"written": str(store.with_suffix(".html"))}
    assert f"<h1>{store.name}</h1>" in store.with_suffix(".html").read_text("utf-8")


def test_a_task_is_updated_its_versions_listed_and_one_restored(folder, store):
    before, inputs = il.load(store), npz(folder / "tasks/c.npz")[0]
    update = ("learn", store, "--data", f"b={folder / 'tasks/c.npz'}", "--update", *QUICK)
    told = run(*update, "--test", f"b={folder / 'test/b.npz'}")
    assert told.startswith("b: updated in ")
    assert re.search(r"accuracy [\d.]+% \([\d.]+% before the update\)", told)
    assert [each["status"] for each in run_json(*update)["tasks"]] == ["already learned"]
    found = run_json("store", "versions", store, "b")
    assert [(each["version"], each["examples"]) for each in found["versions"]] == [(1, 96), (2, 96)]
    assert "version     2" in run("store", "show", store, "b")
    assert "former versions" in run("store", "show", store)
    answer = run("store", "restore", store, "b", 1)
    assert answer == "version 1 of b is back, as its version 3\n"
    assert run("store", "versions", store, "b").splitlines()[-1].split()[:5][-1] == "1"
    after = il.load(store)
    assert after.logits(inputs, "b").equal(before.logits(inputs, "b"))
    assert "got version 9" in error_of("store", "restore", store, "b", 9)
    assert "as a basis task" in error_of(
        "learn", store, "--data", update[3].replace("b=", "a="), "--update"
    )
    error_of("store", "versions", store, "nobody", kind=UnknownTaskError)


def test_data_of_a_version_before_undo_no_update(folder, store):
    """A list of files is given again and again: an update or a restored version must last."""
    first, second = (f"b={folder / 'tasks' / name}.npz" for name in "bc")
    run("learn", store, "--data", second, "--update", *QUICK)
    for data in (first, second):
        for more in ((), ("--update",)):
            (told,) = run_json("learn", store, "--data", data, *more)["tasks"]
            assert (told["status"], told["absent_classes"]) == ("already learned", [])
    assert "as version 1, which version 2 replaced," in run("learn", store, "--data", first)
    run("store", "restore", store, "b", 1)
    assert "as version 2, which version 3 replaced," in run("learn", store, "--data", second)
    assert "as version" not in run("learn", store, "--data", first)
    run("store", "restore", store, "b", 2)
    assert il.load(store).tasks_["b"].version == 4


def test_classes_without_an_example_are_told_of_at_an_update(folder, store, tmp_path):
    inputs, labels = npz(folder / "tasks/c.npz")
    kept = labels != 1
    np.savez(tmp_path / "few.npz", inputs=inputs[kept], labels=labels[kept])
    update = ("learn", store, "--data", f"b={tmp_path / 'few.npz'}", "--update", *QUICK)
    assert "there was no example of 1 of them, 1, which it is likely to have" in run(*update)
    run("store", "restore", store, "b", 1)
    write(tmp_path / "few.npz", 7)
    assert "no example" not in run(*update)


def test_a_store_is_made_for_data_that_can_be_learned(folder, tmp_path):
    inputs, _ = npz(folder / "tasks/b.npz")
    one, path = tmp_path / "one.npz", tmp_path / "s.impress"
    np.savez(one, inputs=inputs, labels=np.full(len(inputs), 3))
    command = ("learn", path, "--random-masks", 2, *NEW, "--data")
    for more in ((), ("--data", f"other={one}")):
        assert "at least two classes; all labels are 3" in error_of(*command, f"one={one}", *more)
        assert os.listdir(tmp_path) == ["one.npz"]
    result = invoke(*command, f"one={one}", "--data", f"b={folder / 'tasks/b.npz'}")
    assert str(result.exception) == "1 of 2 tasks failed: one"
    assert il.load(path).backbone.num_classes == 3
    kept = ("learn", tmp_path / "k.impress", *command[2:], f"b={folder / 'tasks/b.npz'}")
    odd = write(tmp_path / "odd.npz", 1, names=[4, 5, 6])
    line = str(invoke(*kept, "--test", f"b={odd}").exception)
    assert line.startswith("learned, and kept; its test data cannot be used: label 4 was never")
    assert list(il.load(tmp_path / "k.impress").tasks_) == ["b"]
    assert list(il.load(path).tasks_) == ["b"]


def test_a_scale_is_measured_on_all_tasks_and_what_is_off_it_is_told(tmp_path):
    """A column that hardly varies in the first task may vary in others."""
    data = {}
    for name in "abc":
        inputs, labels = (each.numpy().copy() for each in blobs(ord(name)))
        inputs[:, :8] *= 0.001 if name == "a" else 1.0
        np.savez(tmp_path / f"{name}.npz", inputs=inputs.astype("float32"), labels=labels)
        data[name] = inputs
    pairs = [word for name in "abc" for word in ("--data", f"{name}={tmp_path / name}.npz")]
    how = ("--random-masks", 4, "--standardise", *NEW)
    told = run_json("learn", tmp_path / "all.impress", *pairs, *how)["tasks"]
    assert [each["columns_off_scale"] for each in told] == [0, 0, 0]
    std = il.load(tmp_path / "all.impress").preprocessing.std
    np.testing.assert_allclose(std, np.concatenate([*data.values()]).std(), rtol=1e-4)
    alone = tmp_path / "first.impress"
    run("learn", alone, *pairs[:2], *how)
    assert "8 columns far off the store's mean and std" in run("learn", alone, *pairs[:4])
    again = ("learn", alone, "--data", f"b={tmp_path / 'c.npz'}", "--update", "--json")
    assert json.loads(run(*again))["tasks"][0]["columns_off_scale"] == 8


def test_columns_are_found_by_their_names(tmp_path):
    inputs, labels = blobs(3)
    names = [f"f{number}" for number in range(16)]

    def table(name, order, header=True):
        lines = [",".join([*(names[place] for place in order), "label"])] if header else []
        for row, label in zip(inputs.tolist(), labels.tolist(), strict=True):
            lines.append(",".join([*(str(row[place]) for place in order), str(label)]))
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    path, order = tmp_path / "s.impress", list(range(16))
    learned = table("a.csv", order)
    run("learn", path, "--data", f"a={learned}", "--random-masks", 8, *NEW)
    other = table("b.csv", order[::-1])
    (told,) = run_json("learn", path, "--data", f"a={other}", "--update")["tasks"]
    assert told["status"] == "already learned"  # these are the same data
    expected = run_json("predict", path, learned, "--task", "a")["rows"]
    assert run_json("predict", path, other, "--task", "a")["rows"] == expected
    plain = table("c.csv", order, header=False)
    found = run_json("predict", path, plain, "--task", "a", "--label-column", -1)["rows"]
    assert found == expected
    named = table("n.csv", order)
    named.write_text(named.read_text().replace("label", "species", 1))
    line = error_of("predict", path, named, "--task", "a")
    assert re.search("'species' is new: .*; if it holds the labels, say so with label_column", line)
    left = run_json("predict", path, named, "--task", "a", "--label-column", "species")["rows"]
    assert left == expected
    apart = tmp_path / "labels.csv"
    apart.write_text("\n".join(["klass", *map(str, labels.tolist())]))
    bare = table("e.csv", order)
    rows = [line.rsplit(",", 1)[0] for line in bare.read_text().split("\n")]
    bare.write_text("\n".join(rows))
    given = ("--labels", apart, "--label-column", "klass", "--random-masks", 2, *NEW)
    (told,) = run_json("learn", tmp_path / "o.impress", "--data", f"a={bare}", *given)["tasks"]
    assert told["status"] == "learned"
    names[2] = names[3]
    assert "several columns are called 'f3'" in error_of(
        "predict", path, table("f.csv", order), "--task", "a"
    )
    names[2], names[3] = "f2", "new"
    line = error_of("predict", path, table("d.csv", order), "--task", "a")
    assert line.startswith(f"{tmp_path / 'd.csv'}: column 'f3' is missing: those of the first")


def test_homogeneous_masks_and_outputs_for_all_tasks(folder, tmp_path):
    inputs, labels = blobs(9, classes=5)
    np.savez(tmp_path / "wide.npz", inputs=inputs.numpy(), labels=labels.numpy())
    first, more = f"a={folder / 'basis/a.npz'}", ("--data", f"w={tmp_path / 'wide.npz'}")
    for outputs, given in ((5, more), (7, ("--classes", 7))):
        path = tmp_path / str(outputs)
        run("learn", path, "--data", first, *given, "--homogeneous", 3, *NEW)
        assert il.load(path).backbone.num_classes == outputs
    assert il.load(path).bank_.names == ("a", "a/1", "a/2")
    assert run_json("learn", path, "--data", first, "--basis")["tasks"][0]["role"] == "basis"


def test_standardising():
    examples = il.Examples(3 + 2 * torch.randn(500, 16), np.zeros(500, int))
    found = new_preprocessing(FileReader(), examples, standardise=True)
    assert (found.mean, found.std) == (pytest.approx(3, abs=0.2), pytest.approx(2, abs=0.2))
    assert new_preprocessing(FileReader(mean=1.0), examples, standardise=True).mean == 1


def test_how_a_tasks_inputs_were_read_holds_later(tmp_path):
    kept = {"size": 8, "mean": [0.1, 0.2, 0.3]}
    learner = quick_learner()
    assert reader_for(learner, FileReader(size=4), tmp_path) == FileReader(size=4)
    learner.learn_basis("a", blobs(), note={"inputs": kept})
    learner.learn_basis("b", blobs(1), note={"data": 3, "inputs": [1]})
    for task in (None, learner.tasks_["a"]):
        later = reader_for(learner, FileReader(size=4), tmp_path, task)
        assert (later.size, later.mean, later.std) == (4, [0.1, 0.2, 0.3], None)
    assert reader_for(learner, FileReader(), tmp_path, learner.tasks_["b"]) == FileReader()


def test_data_sets_of_a_folder(tmp_path):
    for name in ("b.npz", "a.CSV", "notes.txt", ".hidden.csv", "x.npy"):
        (tmp_path / name).touch()
    (tmp_path / "c.d").mkdir()
    assert list(data_sets_in(tmp_path)) == ["a", "b", "c.d"]
    (tmp_path / "b.csv").touch()
    with pytest.raises(InputError, match="would both be task 'b'"):
        data_sets_in(tmp_path)


def test_csv_and_standardised_inputs_are_read_the_same_way_later(tmp_path):
    inputs, labels = blobs(3)
    header = [f"f{number}" for number in range(16)]
    rows = [[f"{value:.4f}" for value in row] for row in (50 + 9 * inputs).tolist()]
    species = np.array(["x", "y", "z"])[labels]
    lines = [",".join([*header, "species"])]
    lines += [",".join([*row, name]) for row, name in zip(rows, species, strict=True)]
    (tmp_path / "plants.csv").write_text("\n".join(lines))
    (tmp_path / "new.csv").write_text("\n".join([",".join(header), *map(",".join, rows)]))
    path, column = tmp_path / "s", ("--label-column", "species")
    data = ("--data", tmp_path / "plants.csv", "--task", "plants", *column, "--standardise")
    for _ in range(2):
        run("learn", path, *data, "--random-masks", 8, *NEW, "--min-steps", 200)
    assert il.load(path).preprocessing.mean == pytest.approx(50, abs=5)
    labels = ("--labels", tmp_path / "plants.csv", *column)
    told = run_json("predict", path, tmp_path / "new.csv", "--task", "plants", *labels, "--proba")
    assert told["accuracy"] > 0.8
    assert told["classes"] == ["x", "y", "z"]
    assert sum(told["rows"][0]["probabilities"]) == pytest.approx(1, abs=1e-4)
    other = run_json("predict", path, tmp_path / "new.csv", "--task", "plants", "--prepared")
    assert other["rows"] != told["rows"]
    line = error_of("predict", path, tmp_path / "new.csv", "--task", "plants", "--mean", 0)
    assert line.startswith("the store prepares its inputs with mean ")


def test_image_folders(tmp_path):
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(8):
            pixels = random.normal(level, 20, (10, 12, 3)).clip(0, 255).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    network = ("--backbone", "resnet18", "--set", "width=2", "--norm", "per_task", "--size", 8)
    quick = ("--epochs", 0, "--min-steps", 15, "--random-masks", 3)
    path = tmp_path / "s.impress"
    run("learn", path, "--data", f"p={tmp_path / 'pictures'}", *network, *quick)
    lines = run("predict", path, tmp_path / "pictures" / "dark", "--task", "p").splitlines()
    assert [line.split("\t")[0] for line in lines] == [f"{number}.png" for number in range(8)]


UNUSABLE = [
    ([], "--data, or a folder"),
    (["--data", "DATA"], "--task NAME"),
    (["--data", "x=DATA", "--data", "x=DATA"], "given twice for 'x'"),
    (["--data", "x=no.npz"], "no file or folder no.npz"),
    (["--data", "DATA", "--data", "DATA", "--task", "a"], "--task names a single"),
    (["--data", "x=DATA", "--tasks", "."], "--data, or a folder"),
    (["--tasks", "no-folder"], "no folder no-folder"),
    (["--tasks", "EMPTY"], "holds no task"),
    (["--tasks", "EMPTY", "--task", "a"], "leave out --task"),
    (["--data", "x=DATA", "--test", "y=DATA"], "none of the tasks"),
    (["--data", "x=DATA"], "--random-masks 20"),
    *((["--data", "x=DATA", "--basis", *given], words) for given, words in (
        (["--set", "width"], "KEY=VALUE"),
        (["--set", "width=3"], "its settings are"),
        (["--backbone", "vgg"], "choose from"),
        (["--preset", "no"], "the preset must be one of default, "),
        (["--precision", "int3"], "int5, int4"),
        (["--sparsity", "95"], "95"),
        (["--mean", "a"], "--mean takes numbers"),
        (["--shape", "1,2.5"], "whole numbers"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), UNUSABLE)
def test_a_new_store_is_not_created_from_unusable_arguments(folder, tmp_path, arguments, words):
    (tmp_path / "empty").mkdir()
    places = {"DATA": str(folder / "tasks/b.npz"), "EMPTY": str(tmp_path / "empty")}
    for word, place in places.items():
        arguments = [each.replace(word, place) for each in arguments]
    kind = InputError, MissingDataError
    assert words in error_of("learn", tmp_path / "s.impress", *arguments, kind=kind)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_file_that_is_no_store_is_left_alone(folder, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("keep me")
    data = ("--data", f"x={folder / 'tasks/b.npz'}", "--basis")
    assert "not an impresslearn store" in error_of("learn", path, *data, kind=StoreError)
    assert path.read_text() == "keep me"


# Predicting


@pytest.mark.nightly
def test_prediction_in_a_process_of_its_own(folder, ready):
    expected = il.load(ready).predict(torch.from_numpy(np.load(folder / "new.npy")), task="b")
    before = ready.read_bytes()
    running = process("predict", ready, folder / "new.npy", "--task", "b")
    lines, remarks = running.communicate(timeout=60)
    assert (running.returncode, remarks) == (0, "")
    cells = [line.split("\t") for line in lines.splitlines()]
    assert [cell[0] for cell in cells] == [str(number) for number in range(1, 65)]
    assert [int(cell[1]) for cell in cells] == expected.tolist()
    assert all(0 < float(cell[2]) <= 1 for cell in cells)
    assert ready.read_bytes() == before


def test_prediction_scores_and_infers(folder, ready):
    labels = ("--labels", folder / "new.txt")
    told = run_json("predict", ready, folder / "new.npy", *labels)
    assert told["inferred"]["task"] == told["task"] == "b"
    given = map(int, (folder / "new.txt").read_text().split())
    pairs = zip(told["rows"], given, strict=True)
    assert told["accuracy"] == sum(row["label"] == label for row, label in pairs) / 64
    plain = run("predict", ready, folder / "new.npy", "--task", "b", *labels)
    assert plain.splitlines()[-1] == f"accuracy {told['accuracy']:.1%} of 64 rows"


@pytest.mark.parametrize("method", ["exhaustive", "one_shot", "alpha"])
def test_inference(folder, ready, method):
    command = ("infer", ready, folder / "new.npy", "--method", method)
    told = run_json(*command)
    assert (told["task"], told["unknown"], told["method"]) == ("b", False, method)
    assert told["posterior"][0]["task"] == "b"
    assert len(told["rows"]) == 64
    lines = run(*command).splitlines()
    assert lines[0].split() == ["task", "b"]
    assert len([line for line in lines if line.count("\t") == 2]) == 64


def test_inference_among_some(folder, ready):
    for among in ("basis", "a"):
        told = run_json("infer", ready, folder / "new.npy", "--among", among)
        assert [each["task"] for each in told["posterior"]] == ["a"]
        assert told["rows"] is None or not told["unknown"]


def test_unusable_inputs_are_one_line(folder, ready, tmp_path):
    odd, inputs = tmp_path / "odd.npy", folder / "new.npy"
    np.save(odd, np.zeros((2, 5), np.float32))
    assert "16 values" in error_of("predict", ready, odd, "--task", "b")
    assert "'b'" in error_of("predict", ready, inputs, "--task", "B", kind=UnknownTaskError)
    assert "no store" in error_of("infer", tmp_path / "no.impress", inputs, kind=StoreError)


# Stores


def test_listing(ready):
    rows = [line.split("\t") for line in run("store", "ls", ready).splitlines()]
    assert rows[0] == ["task", "role", "classes", "masks", "bytes", "learned at"]
    assert [row[:4] for row in rows[1:]] == [["a", "basis", "3", "1"], ["b", "learned", "3", "13"]]
    short = invoke("store", "ls", ready, "--limit", 1)
    assert len(short.stdout.splitlines()) == 2
    assert "1 more" in short.stderr
    told = run_json("store", "ls", ready)
    assert told["total"] == 2
    assert told["tasks"][1]["bytes"] == il.load(ready).tasks_["b"].bytes


def test_showing(ready):
    text = run("store", "show", ready)
    assert all(word in text for word in ("lenet_300_100", "widths [24, 12]", "sparsity 0.7"))
    assert run_json("store", "show", ready)["tasks"] == 2
    told = run_json("store", "show", ready, "b")
    assert told["history"]["recipe"]["min_steps"] == 200
    assert sum(told["breakdown"].values()) == told["bytes"]
    assert "min_steps 200" in run("store", "show", ready, "b")
    assert "'b'" in error_of("store", "show", ready, "bb", kind=UnknownTaskError)


def test_verifying_tells_a_sound_file_from_a_damaged_one(store):
    assert "is sound: 2 tasks, 13 masks" in run("store", "verify", store)
    content = bytearray(store.read_bytes())
    place = len(content) // 2
    content[place : place + 64] = bytes(byte ^ 255 for byte in content[place : place + 64])
    store.write_bytes(content)
    result = invoke("store", "verify", store, "--json")
    assert (result.exit_code, result.stderr) == (2, "")
    assert json.loads(result.stdout)["sound"] is False
    assert "damaged" in error_of("store", "verify", store, kind=StoreError)


def test_removing_compacting_and_importing(ready, store):
    assert "pass --yes" in error_of("store", "rm", store, "b")
    assert "nothing was removed" in error_of("store", "rm", store, "b", "no", "--yes")
    assert run_json("store", "rm", store, "b", "--yes")["removed"] == ["b"]
    told = run_json("store", "compact", store)
    assert told["bytes_after"] == os.path.getsize(store)
    assert "already" in error_of("store", "import", store, ready)
    assert run_json("store", "import", store, ready, "--task", "b")["imported"] == ["b"]
    assert list(il.load(store).tasks_) == ["a", "b"]


def test_removing_a_basis_task_asks_a_person(monkeypatch, store):
    monkeypatch.setattr("impresslearn.cli.store._is_terminal", lambda: True)
    for answer, status, left in (("n\n", 1, ["a", "b"]), ("y\n", 0, ["b"])):
        result = invoke("store", "rm", store, "a", input=answer)
        assert "Remove 1 task from" in result.stderr
        assert result.exit_code == status
        assert list(il.load(store).tasks_) == left
    assert "mask 'a' stays: combined by 1 task\n" in result.stdout
    assert run_json("store", "rm", store, "b", "a", "--yes")["masks_kept"] == {}
    assert "0 tasks, 12 masks" in run("store", "verify", store)


def test_exporting_a_smaller_store(folder, ready, tmp_path):
    out = tmp_path / "small.impress"
    data = ("--data", f"b={folder / 'test/b.npz'}")
    command = ("store", "export", ready, out, "--task", "b", "--precision", "int4", *data)
    (change,) = run_json(*command)["rounding"]
    assert change["bytes_after"] <= change["bytes_before"]
    learner = il.load(out)
    assert list(learner.tasks_) == ["b"]
    assert change["accuracy_after"] == learner.score(npz(folder / "test/b.npz"), "b")
    assert "pass --overwrite" in error_of("store", "export", ready, out)
    text = run("store", "export", ready, out, "--precision", "int8", *data, "--overwrite")
    assert "all tasks:" in text
    assert "2 tasks" in text
    assert "is the store itself" in error_of("store", "export", ready, ready, "--overwrite")
    assert "give both" in error_of("store", "export", ready, tmp_path / "x.impress", *data)


def test_exporting_a_model(folder, ready, tmp_path):
    from safetensors.torch import load_file

    out = tmp_path / "b.safetensors"
    assert "name it with --task" in error_of("store", "export", ready, out)
    assert "OUT must end in" in error_of("store", "export", ready, tmp_path / "b.txt")
    assert run_json("store", "export", ready, out, "--task", "b")["tasks"] == ["b"]
    learner = il.load(ready)
    module = il.create_backbone(**learner.backbone.spec).module
    module.load_state_dict(load_file(out))
    inputs = torch.from_numpy(np.load(folder / "new.npy"))
    torch.testing.assert_close(module(inputs), learner.logits(inputs, "b"))


def test_few_examples_are_told_their_preset(folder, store, tmp_path):
    few = ("--data", write(tmp_path / "few.npz", 4, slice(0, 40)), "--task", "few")
    fits = "few has 40 examples: a new store with --preset few_labels"
    result = invoke("learn", store, *few, *QUICK)
    assert fits in result.stderr
    assert fits not in result.stdout
    again = invoke("learn", store, *few[:-1], "quiet", *QUICK, "--quiet")
    assert (again.exit_code, again.output) == (0, "")
    readouts = tmp_path / "readouts.impress"
    basis = ("--tasks", folder / "basis", "--basis", "--features", "--preset", "few_labels", *NEW)
    for _ in range(2):  # what was learned is left as it is
        run("learn", readouts, *basis)
        assert run_json("store", "show", readouts)["projections"] == 1
    test = ("--test", write(tmp_path / "test.npz", 4, slice(40, None)))
    result = invoke("learn", readouts, *few, *test, "--json")
    assert "few_labels" not in result.stderr
    assert json.loads(result.stdout)["tasks"][0]["accuracy"] > 0.9


def test_readouts_need_no_masks_and_others_no_features(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    data = ("--data", folder / "basis" / "a.npz", "--task", "a")
    readouts = ("readouts.impress", "--preset", "few_labels", "--module", "nets:make")
    run("learn", *readouts, *data)
    assert run_json("store", "show", "readouts.impress", "--module", "nets:make")["masks"] == 0
    line = error_of("learn", "others.impress", *data, "--basis", "--features", *QUICK)
    assert "--preset few_labels" in line
    assert not (tmp_path / "others.impress").exists()


NETS = """
import impresslearn as il
import torch
from torch import nn


def make():
    return nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 5))


def adapted():
    return il.adapt(make(), input_shape=(16,), head="shared")


def broken():
    raise ValueError("no weights here")


def number():
    return 3
"""


def test_a_network_of_ones_own(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    store, own = "own.impress", ("--module", "nets:make")
    tasks = ("--tasks", folder / "tasks", "--test", folder / "test", "--preset", "pretrained")
    learn = ("learn", store, *tasks, *own, *QUICK)
    assert "a head for each task" in run(*learn)
    told = run_json(*learn)["tasks"]
    assert {each["status"] for each in told} == {"already learned"}
    assert next(each["accuracy"] for each in told if each["task"] == "b") > 0.8
    write("two.npz", 5, names=["cat", "dog", "dog"])
    run("learn", store, "--data", "two.npz", "--task", "two", *own, *QUICK)
    for command in (("infer", store, folder / "new.npy"), ("store", "ls", store)):
        assert run_json(*command, *own)
        assert "--module FILE:FUNCTION" in error_of(*command, kind=StoreError)
    assert run_json("store", "show", store, "two", *own)["classes"] == 2
    assert "own, one for every task" in run("store", "show", store)
    assert run_json("store", "verify", store, *own) == {
        "store": store, "sound": True, "tasks": 4, "masks": 16
    }  # fmt: skip
    rows = run_json("predict", store, folder / "new.npy", "--task", "two", *own)["rows"]
    run("store", "export", store, "two.pt2", "--task", "two", *own)
    logits = torch.export.load("two.pt2").module()(torch.from_numpy(np.load(folder / "new.npy")))
    labels = [("cat", "dog")[each] for each in logits.argmax(1)]
    assert [each["label"] for each in rows] == labels


def test_networks_of_ones_own_that_do_not_fit(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    data = ("--data", folder / "tasks" / "b.npz", "--task", "b", "--preset", "pretrained")
    for given, words in (
        (("--module", "nets:adapted"), "il.adapt(module)"),
        (
            ("--module", "nets:number"),
            "nets:number must return an nn.Module or a Backbone",
        ),
        (("--module", "nets:broken"), "nets.py:16: ValueError: no weights here"),
        (("--module", "nets:other"), "has no function 'other'"),
        (("--module", "other:make"), "there is no"),
        (("--module", "nets"), "takes FILE:FUNCTION, as nets:make, got 'nets'"),
        (("--module", "nets:make", "--norm", "batch"), "--norm is not for --module"),
        (("--module", "nets:make", "--granularity", "weight", "--random-masks", "9"), "no masks"),
        ((), "needs a pretrained network"),
    ):
        assert words in error_of("learn", "x.impress", *data, *given)
    assert not os.path.exists("x.impress")
    shared = ("learn", "shared.impress", *data[:-2], "--random-masks", "9")
    assert "5 outputs" in run(*shared, "--module", "nets:adapted", *QUICK)


def test_inputs_of_an_unusual_scale_are_told_of(folder, tmp_path):
    inputs, labels = blobs(0)
    np.savez(tmp_path / "raw.npz", inputs=100 + 50 * inputs.numpy(), labels=labels.numpy())
    how = ("--data", f"raw={tmp_path / 'raw.npz'}", "--random-masks", 3, *NEW)
    told = invoke("learn", tmp_path / "a.impress", *how).stderr
    assert re.search(r"a mean of \d+ and a deviation of \d+: a new store with --standardise", told)
    assert invoke("learn", tmp_path / "b.impress", *how, "--standardise").stderr == ""
    assert invoke("learn", tmp_path / "c.impress", *how, "--quiet").stderr == ""
    usual = ("--data", f"b={folder / 'tasks/b.npz'}", "--random-masks", 3, *NEW)
    assert invoke("learn", tmp_path / "d.impress", *usual).stderr == ""


def test_no_task_takes_more_than_the_store_says(folder, tmp_path):
    store, most = tmp_path / "s.impress", 150
    command = ("learn", store, "--tasks", folder / "tasks", "--preset", "per_weight", *QUICK)
    free = run_json(*command, "--bit-price", 0.01)["tasks"]
    assert max(task["bytes"] for task in free) > most
    store.unlink()
    for status in ("learned", "already learned"):
        told = run_json(*command, "--bit-price", 0.01, "--max-bytes", "0.15kB")["tasks"]
        assert {task["status"] for task in told} == {status}
        assert max(task["bytes"] for task in told) <= most
        dearer = [task for task in told if task["bit_price_raised"]]
        assert bool(dearer) is (status == "learned")
        assert all(task["bit_price"] > 0.01 for task in dearer)
    later = ("learn", store, "--data", f"later={folder / 'basis/a.npz'}")
    assert run_json(*later)["tasks"][0]["bytes"] <= most
    assert "a number of bytes" in error_of(*later, "--max-bytes", "little")
    other = ("learn", tmp_path / "o.impress", *command[2:4], "--random-masks", 2, *NEW)
    assert "needs precision" in error_of(*other, "--max-bytes", 9)


def test_a_price_of_ones_own_holds_when_the_command_is_given_again(folder, tmp_path):
    command = ("learn", tmp_path / "s.impress", "--data", f"a={folder / 'basis/a.npz'}", "--test")
    command += (folder / "test/a.npz", "--preset", "per_weight", "--bit-price", "0.3", *QUICK)
    for status in ("learned", "already learned"):
        assert run_json(*command)["tasks"][0]["status"] == status
    assert "with bit_price 0.3, not 0.5" in error_of(
        *[each for each in command if each != "--bit-price" and each != "0.3"]
    )
