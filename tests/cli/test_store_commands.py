"""From data files to a store and out of it again, command by command."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.cli import shared
from impresslearn.errors import InputError, StoreError, TrainingError
from impresslearn.learner.presets import CANDIDATES
from toys import blobs, few_labels, invoke, run

QUICK = 'recipe={"epochs":0,"min_steps":100,"batch_size":32}'
NEW = ("--network", "widths=[24,12]", "--set", "sparsity=0.7", "--set", QUICK)
NETS = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 5))
"""


def write(path, seed, part=slice(0, 96)):
    inputs, labels = blobs(seed, count=160)
    np.savez(path, inputs=inputs[part].numpy(), labels=labels[part].numpy())
    return path


def run_json(*arguments):
    return json.loads(run(*arguments, "--json"))


def error_of(*arguments, kind=InputError):
    result = invoke(*arguments)
    assert isinstance(result.exception, kind), (result.output, result.exception)
    assert result.stdout == ""
    return str(result.exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train/{a,b,c,d}.npz, test/{a,b,c,d}.npz, and new.npy: inputs of b."""
    root = tmp_path_factory.mktemp("data")
    for name in ("train", "test"):
        (root / name).mkdir()
    for seed, name in enumerate("abcd"):
        write(root / "train" / f"{name}.npz", seed)
        write(root / "test" / f"{name}.npz", seed, slice(96, None))
    np.save(root / "new.npy", blobs(1, count=160)[0][96:].numpy())
    return root


@pytest.fixture(scope="module")
def ready(folder):
    """A store with the basis task a and the task b."""
    path, train = folder / "ready.impress", folder / "train"
    run("new", path, train / "a.npz", train / "b.npz", "--masks", 12, *NEW)
    run("learn", path, train / "a.npz", "--basis")
    run("learn", path, train / "b.npz")
    return path


@pytest.fixture
def store(ready, tmp_path):
    """A copy that a test may change."""
    return shutil.copy(ready, tmp_path / "s.impress")


def test_tasks_are_learned_once_and_evaluated(folder, tmp_path):
    path, train = tmp_path / "s.impress", sorted((folder / "train").iterdir())
    said = run("new", path, *train, "--masks", 8, *NEW)
    assert said == f"created {path}: lenet_300_100, 3 outputs, 708 weights\n"
    lines = run("learn", path, *train).splitlines()
    assert [line.split(" in ")[0] for line in lines] == [f"{name}: learned" for name in "abcd"]
    assert "from 96 examples, 3 classes, " in lines[0]
    again = run("learn", path, folder / "train").splitlines()
    assert again == [f"{name}: already learned from these data" for name in "abcd"]
    rows = run_json("evaluate", path, folder / "test")
    inputs, labels = blobs(0, count=160)
    accuracy = il.load(path).score((inputs[96:], labels[96:]), "a")
    assert rows[0] == {"task": "a", "accuracy": accuracy, "examples": 64}
    assert min(row["accuracy"] for row in rows) > 0.5
    run("learn", path, f"e={train[0]}")
    images = tmp_path / "images"
    (images / "cat").mkdir(parents=True)
    shutil.copy(train[0], images)
    assert shared.task_paths([str(images)]) == {"images": images}  # not the table beside the class
    assert list(il.load(path).tasks_) == [*"abcde"]


@pytest.mark.parametrize("workers", [(), ("--workers", 2)])
def test_a_task_that_fails_does_not_stop_the_others(folder, store, tmp_path, workers):
    broken = write(tmp_path / "b.npz", 9).with_name("broken.npz")
    broken.write_bytes(b"PK but no archive")
    alone, good = shutil.copy(store, tmp_path / "alone.impress"), folder / "train" / "c.npz"
    run("learn", alone, good)
    result = invoke("learn", store, folder / "train" / "b.npz", broken, good, *workers)
    assert result.exit_code == 3
    assert "c: learned" in result.stdout
    assert "error: 1 of 3 tasks failed: broken (1 learned, 1 already there)" in result.stderr
    logits = [il.load(path).logits(np.load(folder / "new.npy"), "c") for path in (store, alone)]
    assert torch.equal(*logits)  # the same bits with workers and without
    shutil.copy(good, tmp_path)
    said = invoke("learn", store, tmp_path).stderr
    assert "error: 2 of 3 tasks failed: b, broken (0 learned, 1 already there)" in said
    assert list(il.load(store).tasks_) == ["a", "b", "c"]
    again = invoke("learn", store, broken, folder / "train" / "d.npz", "--json")
    rows = list(map(json.loads, again.stdout.splitlines()))
    assert [row["status"] for row in rows] == ["failed", "learned"]
    assert "broken.npz" in rows[0]["error"]


@pytest.mark.filterwarnings("error:'random' was not learned")
def test_a_task_of_random_labels_is_not_kept(folder, store, tmp_path):
    inputs, labels = (part.numpy() for part in blobs(3, count=200))
    random = np.random.default_rng(0).permutation(labels)
    third = np.where(np.arange(200) % 3 == 0, labels, random)
    for name, given in (("random", random), ("good", labels), ("third", third)):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=given)
    enough = ("--min-accuracy", 0.8)
    line = error_of("learn", store, tmp_path / "random.npz", *enough, kind=TrainingError)
    assert "of 41 held-out examples are right, at least 80.0% must be" in line
    run("learn", store, tmp_path / "good.npz", *enough)
    worse = f"good={tmp_path / 'third.npz'}"
    line = error_of("learn", store, worse, "--update", "--only-if-better", kind=TrainingError)
    assert "held-out examples are right" in line
    assert list(il.load(store).tasks_) == ["a", "b", "good"]
    inputs, labels = inputs[labels < 2], labels[labels < 2]
    np.savez(tmp_path / "two.npz", inputs=inputs, labels=labels)
    labels[:2] = 2  # one of them is held out
    np.savez(tmp_path / "three.npz", inputs=inputs, labels=labels)
    run("learn", store, tmp_path / "two.npz")
    run("learn", store, f"two={tmp_path / 'three.npz'}", "--update", "--only-if-better")
    fresh = tmp_path / "fresh.impress"
    run("new", fresh, tmp_path / "good.npz", *NEW)
    run("learn", fresh, tmp_path / "good.npz", "--basis", *enough)


def test_a_task_is_updated_and_restored(folder, store):
    before, inputs = il.load(store), torch.from_numpy(np.load(folder / "new.npy"))
    update = ("learn", store, f"b={folder / 'train' / 'c.npz'}", "--update")
    assert run(*update).startswith("b: updated to version 2 in ")
    # A list of files is given again and again: old data must not undo the update.
    for data in (update[2], folder / "train" / "b.npz"):
        assert run("learn", store, data, "--update") == "b: already learned from these data\n"
    assert [row["version"] for row in run_json("tasks", store, "b")] == [1, 2]
    assert run("restore", store, "b", 1) == "b: version 1 is back, as version 3\n"
    assert il.load(store).logits(inputs, "b").equal(before.logits(inputs, "b"))


def test_few_labels_need_features(folder, tmp_path):
    path, train = tmp_path / "s.impress", folder / "train"
    run("new", path, train / "a.npz", "--preset", "few_labels", *NEW)
    run("learn", path, train / "a.npz", train / "b.npz", "--basis", "--features")
    assert run_json("info", path)["projections"] == 1
    assert invoke("learn", path, "no.npz", "none.npz", "--features").exit_code == 3
    run("learn", path, write(tmp_path / "few.npz", 4, slice(0, 40)))
    test = write(tmp_path / "test.npz", 4, slice(40, None))
    assert run_json("evaluate", path, f"few={test}")[0]["accuracy"] > 0.9


def test_columns_labels_and_scale_of_tables(tmp_path):
    pandas = pytest.importorskip("pandas")
    inputs, targets = blobs(3)
    names = [f"f{number}" for number in range(16)]
    table = pandas.DataFrame(50 + 9 * inputs.numpy(), columns=names)
    table["species"] = np.array([*"xyz"])[targets]
    path, column = tmp_path / "s.impress", ("--label-column", "species")
    plants, mirrored = tmp_path / "plants.csv", tmp_path / "other.csv"
    table.to_csv(plants, index=False)
    table[table.columns[::-1]].to_csv(mirrored, index=False)
    result = invoke("new", tmp_path / "raw.impress", plants, *column, *NEW)
    assert re.search(r"a mean of 5[\d.]+ and .*--standardise", result.stderr)
    result = invoke("new", path, plants, *column, "--standardise", "--masks", 8, *NEW)
    assert (result.exit_code, result.stderr) == (0, "")
    run("learn", path, plants, *column)
    assert run_json("evaluate", path, plants, *column)[0]["accuracy"] > 0.5
    result = run_json("predict", path, plants, "--task", "plants", *column)
    assert result["classes"] == ["x", "y", "z"]
    rows = run_json("predict", path, mirrored, "--task", "plants", *column)["rows"]
    assert [row["label"] for row in rows] == [row["label"] for row in result["rows"]]
    made_in_python = few_labels(il.create_backbone("linear", 3, in_features=16, head="own"))
    made_in_python.save(path, overwrite=True)
    run("learn", path, plants, mirrored, *column)
    rows = run_json("evaluate", path, f"plants={mirrored}", f"other={plants}", *column)
    assert min(row["accuracy"] for row in rows) > 0.9


def test_the_scale_is_measured_on_all_tasks(tmp_path):
    """A column that hardly varies in the first task may vary in others."""
    paths, data = [], []
    for name in "abc":
        inputs, targets = (part.numpy().copy() for part in blobs(ord(name)))
        inputs[:, :8] *= 0.001 if name == "a" else 1.0
        paths.append(tmp_path / f"{name}.npz")
        data.append(inputs)
        np.savez(paths[-1], inputs=inputs.astype("float32"), labels=targets)
    run("new", tmp_path / "s.impress", *paths, "--standardise", *NEW)
    std = il.load(tmp_path / "s.impress").preprocessing.std
    np.testing.assert_allclose(std, np.concatenate(data).std(), rtol=1e-4)


def test_image_folders(tmp_path):
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(8):
            pixels = random.normal(level, 20, (10, 12, 3)).clip(0, 255).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    network = ("--backbone", "resnet18", "--network", "width=2", "--network", "norm=per_task")
    recipe = 'recipe={"epochs":0,"min_steps":15}'
    path, pictures = tmp_path / "s.impress", tmp_path / "pictures"
    prepare = ("--prepare", "size=8", "--prepare", "mean=[0.5,0.4,0.4]")
    run("new", path, pictures, *network, "--set", recipe, "--masks", 3, *prepare)
    run("learn", path, pictures)
    lines = run("predict", path, pictures / "dark", "--task", "pictures").splitlines()
    assert [line.split("\t")[0] for line in lines] == [f"{number}.png" for number in range(8)]


def test_networks_of_your_own(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    data, module = folder / "train" / "b.npz", ("--module", "nets:make")
    pretrained = ("--preset", "pretrained", "--set", QUICK)
    assert "a head for each task" in run("new", "s.impress", data, *module, *pretrained)
    run("learn", "s.impress", data, *module)
    (told,) = run_json("evaluate", "s.impress", folder / "test" / "b.npz", *module)
    assert told["accuracy"] > 0.8
    assert "--module" in error_of("verify", "s.impress", kind=StoreError)
    # Lists and descriptions need no network.
    assert run_json("tasks", "s.impress")[0]["classes"] == 3
    assert run_json("info", "s.impress", "b")["labels"] == [0, 1, 2]
    assert "is sound: 1 tasks, 16 masks" in run("verify", "s.impress", *module)
    shared = ("--network", "head=shared")
    assert "il.adapt(module)" in error_of("new", "x.impress", data, *module, *shared, *pretrained)
    assert not (tmp_path / "x.impress").exists()
    run("new", "x.impress", data, *module, *shared, "--masks", 3)


def test_advise_prints_commands_that_run_and_no_row_is_wide(folder, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # One method is enough: a readout of features that a basis task learns.
    monkeypatch.setattr("impresslearn.learner.advice.CANDIDATES", CANDIDATES[2:3])
    for name in ("train", "test"):
        shutil.copytree(folder / name, name)
    said = run("advise", "train")
    for command in said.replace(" \\\n", " ").splitlines()[-3:]:
        run(*shlex.split(command)[1:])
    assert list(il.load("STORE.impress").tasks_) == [*"abcd"]
    name = Path(store).name
    said += run("tasks", name) + run("info", name) + run("info", name, "b")
    said += run("evaluate", name, "test/a.npz", "test/b.npz")
    assert max(map(len, said.splitlines())) <= 80


def test_prediction(folder, ready):
    before, inputs = ready.read_bytes(), folder / "new.npy"
    expected = il.load(ready).predict(torch.from_numpy(np.load(inputs)), task="b")
    cells = [line.split("\t") for line in run("predict", ready, inputs, "--task", "b").splitlines()]
    assert [cell[0] for cell in cells] == [str(number) for number in range(1, 65)]
    assert [int(cell[1]) for cell in cells] == expected.tolist()
    assert all(0 < float(cell[2]) <= 1 for cell in cells)
    result = invoke("predict", ready, inputs)
    assert result.stderr.startswith("task b (posterior: b ")
    assert [line.split("\t") for line in result.stdout.splitlines()] == cells
    result = run_json("predict", ready, inputs)
    assert max(result["posterior"], key=result["posterior"].get) == result["task"] == "b"
    assert ready.read_bytes() == before


def test_listing_and_describing(ready):
    rows = [line.split() for line in run("tasks", ready).splitlines()]
    assert rows[0] == ["task", "role", "version", "classes", "masks", "bytes", "learned", "at"]
    assert rows[3][:5] == ["b", "learned", "1", "3", "13"]
    assert run_json("tasks", ready)[1]["bytes"] == il.load(ready).tasks_["b"].bytes
    text = " ".join(run("info", ready).split())
    assert all(words in text for words in ("lenet_300_100", "widths 24, 12", "sparsity 0.7"))
    task = run_json("info", ready, "b")
    assert task["recipe"]["min_steps"] == 100
    assert sum(task["parts"].values()) == task["bytes"]
    assert "min steps 100" in " ".join(run("info", ready, "b").split())


def test_removing_and_compacting(folder, store):
    assert invoke("remove", store, "a").exit_code == 1  # nobody answers
    assert "a" in il.load(store).tasks_
    assert run("remove", store, "a", "--yes") == "removed a\n"
    assert list(il.load(store).tasks_) == ["b"]
    run("learn", store, f"é={folder / 'train' / 'c.npz'}")
    assert run("remove", store, "b", "é", "e\u0301", "--yes") == "removed b, é\n"
    before = store.stat().st_size
    assert run("compact", store).endswith(" now\n")
    assert store.stat().st_size <= before


def test_stores_are_compared_and_merged(folder, store, tmp_path):
    monday, tuesday = (shutil.copy(store, tmp_path / f"{day}.impress") for day in ("mon", "tue"))
    train = folder / "train"
    run("learn", monday, train / "c.npz")
    run("learn", tuesday, train / "d.npz")
    run("learn", tuesday, f"b={train / 'c.npz'}", "--update")
    assert run("diff", monday, monday) == "the tasks are the same\n"
    told = {"only_first": ["c"], "only_second": ["d"], "different": ["b"]}
    assert run_json("diff", monday, tuesday) == told
    refused = invoke("merge", monday, tuesday)
    assert refused.exit_code == 3
    assert refused.stdout == "1 failed, 1 new\n"
    assert refused.stderr.startswith("b: ")
    assert run("merge", monday, tuesday, "--on-conflict", "version") == "1 version, 1 unchanged\n"
    assert run("merge", monday, tuesday) == "2 unchanged\n"
    assert run_json("diff", monday, tuesday)["different"] == []
    assert list(il.load(monday).tasks_) == [*"abcd"]
