"""Stores that somebody forged, with right checksums: one error in one line, fast, in little memory.

What only looks odd (two names that differ in Unicode form, a name with a NUL) is no error.
"""

import json
import os
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
import torch
from forgery import forge_head, forge_mask, forge_state, forge_task, refused
from storekit import INPUTS, digest, small_learner
from torch import nn

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import connections, describe_store, import_tasks
from toys import blobs, quick_learner


@pytest.fixture
def path(tmp_path):
    small_learner().save(tmp_path / "a.impress")
    return tmp_path / "a.impress"


def read_all(path):
    with il.open_store(path, progress=False) as learner:
        for name in list(learner.tasks_):
            learner.predict(INPUTS, name)


def spec(**changes):
    return lambda backbone, settings: (backbone | {"spec": backbone["spec"] | changes}, settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (spec(in_features=10**12), "parameters"),
        (spec(in_features=10**40), "built"),
        (spec(widths=[10**6, 10**6]), "parameters"),
        (spec(widths=[1] * 200_000), "too many layers"),
        (spec(widths=[-1]), "widths"),
        (spec(widths="wide"), "widths"),
        (spec(num_classes=10**9), "parameters"),
        (spec(num_classes=0), "num_classes"),
        (spec(name="nothing"), "no backbone"),
        (spec(name=["lenet_300_100"]), "damaged"),
        (spec(seed=10**30), "seed"),
        (spec(gain="much"), ""),
        (spec(init="zero"), "init"),
        (spec(device="cuda"), "device"),
        (lambda b, s: (b | {"spec": 7}, s), "damaged"),
        (lambda b, s: (b | {"spec": None}, s), "module of your own"),
        (lambda b, s: (b | {"layers": [["x", [10**9, 10**9]]]}, s), "maskable layers"),
        (lambda b, s: (b | {"fingerprint": "0"}, s), "SHA-256"),
        (lambda b, s: ("[" * 100_000 + "]" * 100_000, s), "no JSON"),
        (lambda b, s: ('{"a": ' * 50_000 + "1" + "}" * 50_000, s), "no JSON"),
        (lambda b, s: ("1" * 1_000_000, s), "no JSON"),
        (lambda b, s: ('"' + "x" * 10**8 + '"', s), "too long"),
        (lambda b, s: ("[]", s), "describes no network"),
        (lambda b, s: (b, s | {"penalty": float("nan")}), "no JSON"),
        (lambda b, s: (b, s | {"sparsity": "high"}), "settings"),
        (lambda b, s: (b, s | {"sparsity": 7}), "settings"),
        (lambda b, s: (b, s | {"task_recipe": {"lr": [], "x": 1}}), "settings"),
        (lambda b, s: (b, s | {"task_recipe": 7}), "settings"),
        (lambda b, s: (b, {}), "settings"),
        (lambda b, s: (b, s | {"seed": 1.5}), "seed must be an integer"),
        (lambda b, s: (b, s | {"score_rule": "evil"}), "score_rule must be one of"),
        (lambda b, s: (b, s | {"output_scale": 1}), "output_scale must be True or False"),
        (lambda b, s: (b, s | {"preprocessing": {"std": [0]}}), "std must be a number above 0"),
        (lambda b, s: (b, s | {"preprocessing": {"shape": [10**9, -1]}}), "shape must be"),
        (lambda b, s: (b, s | {"preprocessing": {"evil": 1}}), "settings"),
        (lambda b, s: (b, s | {"preprocessing": 7}), "settings"),
        (lambda b, s: (b | {"num_classes": "3"}, s), "num_classes"),
        (lambda b, s: (b | {"parameters": None}, s), "parameters"),
        (lambda b, s: (b | {"input_shape": ["a"]}, s), "shapes"),
        (lambda b, s: (b | {"layers": [7]}, s), "network"),
        (lambda b, s: ({k: v for k, v in b.items() if k != "norm"}, s), "norm"),
    ],
)  # fmt: skip
def test_forged_heads(path, change, words):
    forge_head(path, change)
    for verb in (il.load, il.open_store, verify_store):
        assert words in refused(path, verb)


def test_a_seed_of_a_giant_network(tmp_path):
    path = tmp_path / "a.impress"
    small_learner().save(path, weights="seed")
    forge_head(path, spec(in_features=10**8))
    assert "parameters" in refused(path)


@pytest.mark.parametrize(
    "columns",
    [
        {"num_masks": 0},
        {"num_masks": -5},
        {"num_masks": 10**15},
        {"num_masks": 2**62},
        {"num_masks": "four"},
        {"num_masks": 5},
        {"classes": "[]"},
        {"classes": '"abc"'},
        {"classes": "[1.5, 2]"},
        {"classes": "[0]"},
        {"classes": "[2, 1, 2]"},
        {"classes": '["a", 1]'},
        {"classes": "[true, false]"},
        {"classes": f"[1, {2**70}]"},
        {"classes": '["\\ud800", "a"]'},
        {"classes": json.dumps(list(range(100_000)))},
        {"classes": "[" * 10_000},
        {"form": '{"precision": "float8", "granularity": "layer"}'},
        {"form": "{}"},
        {"form": "[]"},
        {"form": None},
        {"coefficients": b""},
        {"coefficients": b"1" * 17},
        {"coefficients": "text"},
        {"coefficients": None},
        {"profile": b"123"},
        {"profile": "text"},
        {"profile": np.array([np.nan, 0.5], "<f2").tobytes()},
        {"profile": np.array([0.5, np.inf], "<f2").tobytes()},
        {"profile": np.array([-1, 0.5], "<f2").tobytes()},
        {"profile": np.array([0.5, 2], "<f2").tobytes()},
        {"recipe": "[]"},
        {"metrics": "nothing"},
        {"metrics": '{"loss": NaN}'},
        {"metrics": '{"loss": 1e999}'},
        {"recipe": '{"a\\udfff": 1}'},
        {"created_at": b"\xff"},
        {"statistics": b"1234"},
        {"mask": "basis-0", "num_masks": 10**12},
        {"mask": "basis-0"},
        {"name": b"first"},
        {"name": ""},
    ],
    ids=lambda columns: " ".join(f"{key}={value!r:.20}" for key, value in columns.items()),
)
def test_forged_tasks(path, columns):
    forge_task(path, "first", **columns)
    refused(path)
    refused(path, verify_store)
    refused(path, read_all)


def test_forged_masks(path):
    valid = path.read_bytes()
    recipe = {"ones": [1, 1, 1], "seed": 0, "number": 1}
    for changes in (
        {"ones": [10**9, 1, 1]},
        {"ones": [-1, 1, 1]},
        {"ones": ["1", None, 1]},
        {"ones": [1]},
        {"seed": -1},
        {"seed": 2**300},
        {"seed": "one"},
        {"number": 2**70},
    ):
        path.write_bytes(valid)
        forge_mask(path, 4, recipe=json.dumps(recipe | changes))
        assert "mask" in refused(path)
        assert "mask" in refused(path, read_all)
    for columns in (
        {"bits": b"\x01" + b"\xff" * 400},
        {"bits": "text"},
        {"digest": "text"},
        {"source": b"\xff"},
        {"recipe": "[" * 9000},
        {"recipe": '{"ones": [10.0, 10.0, 10.0]}'},
        {"name": ""},
    ):
        path.write_bytes(valid)
        forge_mask(path, 4, **columns)
        refused(path)
        refused(path, read_all)


@pytest.mark.parametrize(
    "columns",
    [
        {"masks": 10**15},
        {"masks": -1},
        {"masks": "text"},
        {"tasks": -3},
        {"masks_sum": "text"},
        {"tasks_sum": b"1"},
    ],
    ids=str,
)
def test_forged_counts(path, columns):
    with sqlite3.connect(path) as connection:
        forge_state(connection, **columns)
    connection.close()
    for verb in (il.load, read_all, verify_store):
        refused(path, verb)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER t AFTER INSERT ON tasks BEGIN DELETE FROM masks; END",
        "CREATE VIEW v AS SELECT * FROM tasks",
        "CREATE TABLE other (a)",
        "CREATE INDEX i ON tasks (num_masks)",
        "ALTER TABLE tasks ADD COLUMN other TEXT",
        "DROP TABLE tasks",
    ],
)
def test_foreign_tables(path, sql):
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    connection.close()
    for verb in (il.load, il.open_store, describe_store):
        assert "tables" in refused(path, verb)


@pytest.mark.parametrize(
    ("pragma", "words"),
    [
        ("application_id = 7", "no store"),
        ("user_version = 99", "newer impresslearn (format 99"),
        ("user_version = 0", "no format 0"),
        ("user_version = -3", "no format -3"),
    ],
)
def test_foreign_marks(path, pragma, words):
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA {pragma}")
    connection.close()
    for verb in (il.load, il.open_store):
        assert words in refused(path, verb) or (pragma[5:12] == "version" and verb is il.open_store)


def test_files_that_are_no_store(tmp_path):
    for name, content in (("a", b""), ("b", b"text"), ("c", os.urandom(9000)), ("d", bytes(4096))):
        (tmp_path / name).write_bytes(content)
        for verb in (il.load, il.open_store, verify_store, describe_store):
            assert "store" in refused(tmp_path / name, verb)
        assert (tmp_path / name).read_bytes() == content
    sqlite3.connect(tmp_path / "e").execute("CREATE TABLE a (b)").connection.close()
    assert "no store of impresslearn" in refused(tmp_path / "e")


def test_paths_that_are_no_file(tmp_path):
    save = small_learner().save
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    paths = [tmp_path, "/dev/zero", tmp_path / "none", tmp_path / "loop", tmp_path / "none" / "a"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "fifo")
        paths.append(tmp_path / "fifo")
    for path in [*paths, "\0", 7, None, "x" * 300]:
        for verb in (il.load, il.open_store, verify_store, describe_store):
            refused(path, verb)
        if path != tmp_path / "none":
            refused(path, save)


def test_odd_names(path):
    names = ["café", "cafe\u0301", "a\0b", "a", "/", "..", " ", "'; DROP TABLE tasks; --"]
    names += ["💥" * 200, "x" * 100_000, "a\nb", "%s", "a/1", "NULL"]
    inputs = torch.rand(6, 16), np.array(names[:3] * 2)
    with il.open_store(path, progress=False) as learner:
        for name in names:
            learner.learn_task(name, inputs)
        expected = {name: digest(learner, name) for name in names}
        with pytest.raises(il.InputError, match="no valid Unicode"):
            learner.learn_task("\ud800", inputs)
        with pytest.raises(il.InputError, match="no valid Unicode"):
            learner.learn_task("x", (torch.rand(4, 16), ["\ud800", "b", "\ud800", "b"]))
    learner = il.load(path)
    assert list(learner.tasks_)[3:] == names
    assert {name: digest(learner, name) for name in names} == expected
    assert set(learner.tasks_["a"].classes) == set(names[:3])


def test_no_pickle(path):
    """Nothing in the store unpickles, and loading one needs no pickle."""
    code = (
        "import pickle, sys, torch, impresslearn as il\n"
        "def no(*_, **__): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = torch.load = no\n"
        "learner = il.load(sys.argv[1])\n"
        "with il.open_store(sys.argv[1]) as bound: list(bound.tasks_.items())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_long_values_of_ones_own(tmp_path, monkeypatch):
    """What is longer than a modest value is read where the file is long enough to have it."""
    monkeypatch.setattr(connections, "MODEST_VALUE", 20_000)
    path = tmp_path / "a.impress"
    small_learner().save(path)
    with il.open_store(path, progress=False) as one, il.open_store(path, progress=False) as other:
        for number in range(3):
            name, label = f"task {number}", "long" * 20_000 * (number + 1)
            one.learn_task(name, (torch.rand(4, 16), [label, "b", label, "b"]))
            assert digest(other, name) == digest(one, name)
        assert len(list(other.tasks_.values())) == 6
    assert len(il.load(path).tasks_) == 6


def test_shared_statistics_that_are_missing(tmp_path):
    """From a store that was stripped of them, nothing is computed and nothing imported."""
    layers = nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)
    net, line = nn.Sequential(*layers), "statistics that all its tasks share are missing"
    learner = quick_learner(il.adapt(net, num_classes=3, norm="shared")).add_random_masks(3)
    learner.save(tmp_path / "target")
    learner.learn_task("a", blobs(1)).save(tmp_path / "source")
    with sqlite3.connect(tmp_path / "source") as forged:
        forged.execute("DELETE FROM shared")
        forge_state(forged, shared=None)
    forged.close()
    with il.open_store(tmp_path / "source", module=net, progress=False) as opened:
        with pytest.raises(il.StoreError, match=line):
            opened.logits(blobs()[0], "a")
        with pytest.raises(il.StoreError, match=line):
            opened.learn_task("b", blobs())
    with pytest.raises(il.StoreError, match=line):
        import_tasks(tmp_path / "target", tmp_path / "source", module=net)
    assert len(il.load(tmp_path / "target", module=net).tasks_) == 0


def test_metrics_that_nest_deeper_than_any_that_were_written(path):
    forge_task(path, "first", metrics='{"a":' * 60 + "1" + "}" * 60)
    for verb in (il.load, verify_store):
        assert "nests too deep" in refused(path, verb)
