"""Stores that are damaged, or forged with right checksums: one short error, fast, in little memory.

What only looks odd (two names that differ in Unicode form, a name with a NUL) is no error.
"""

import json
import os
import sys

import numpy as np
import pytest
import torch
from storekit import (
    FULL,
    INPUTS,
    QUICKLY,
    digests,
    forge_head,
    forge_mask,
    forge_state,
    forge_task,
    hasty,
    refused,
    small_learner,
    sql,
)

import impresslearn as il
from impresslearn.coefficients.quantisation import PRECISIONS
from impresslearn.learner.loading import verify_store
from impresslearn.store import connections, describe_store, import_tasks
from toys import blobs, pictures, quick_learner, resnet


def read_all(path):
    with il.open_store(path, readonly=True, progress=False) as learner:
        for name in list(learner.tasks_):
            learner.predict(INPUTS, name)


EVERY_WAY = (il.load, verify_store, read_all)


def spec(**changes):
    return lambda b, s: (b | {"spec": b["spec"] | changes}, s)


def network(**changes):
    return lambda b, s: (b | changes, s)


def settings(**changes):
    return lambda b, s: (b, s | changes)


def text(value):
    return lambda b, s: (value, s)


HEADS = [
    (spec(in_features=10**12), "parameters"),
    (spec(in_features=10**40), "built"),
    (spec(widths=[1] * 5_000), "too many layers"),
    (spec(widths="wide"), "widths"),
    (spec(num_classes=0), "num_classes"),
    (spec(name=["lenet_300_100"]), "no backbone"),
    (spec(seed=10**30), "seed"),
    (spec(gain="much"), ""),
    (spec(device="cuda"), "device"),
    (network(spec=7), "damaged"),
    (network(spec=None), "network of your own"),
    (network(layers=[["x", [10**9, 10**9]]]), "maskable layers"),
    (network(fingerprint="0"), "SHA-256"),
    (network(num_classes="3"), "num_classes"),
    (network(input_shape=["a"]), "shapes"),
    (network(layers=[7]), "network"),
    (lambda b, s: ({k: v for k, v in b.items() if k != "norm"}, s), "norm"),
    (text('{"a": ' * 50_000 + "1" + "}" * 50_000), "head"),
    (text("1" * 1_000_000), "head"),
    (text('"' + "x" * 10**8 + '"'), "too long"),
    (text("[]"), "head"),
    (settings(penalty=float("nan")), "head"),
    (settings(sparsity="high"), "settings"),
    (settings(task_recipe={"lr": [], "x": 1}), "settings"),
    (settings(task_recipe=7), "settings"),
    (lambda b, s: (b, {}), "settings"),
    (settings(score_rule="evil"), "score_rule must be one of"),
    (settings(preprocessing={"shape": [10**9, -1]}), "shape must be"),
    (settings(preprocessing=7), "settings"),
]


@pytest.mark.parametrize(("change", "words"), HEADS)
def test_forged_heads(path, change, words):
    forge_head(path, change)
    for verb in (il.load, il.open_store, verify_store):
        assert words in refused(path, verb)


TASKS = [
    *({"num_masks": count} for count in (0, -5, 10**15, 2**62, "four", 5)),
    *({"classes": classes} for classes in (
        "[]", '"abc"', "[1.5, 2]", "[0]", "[2, 1, 2]", '["a", 1]', "[true, false]",
        f"[1, {2**70}]", '["\\ud800", "a"]', json.dumps(list(range(20_000))), "[" * 10_000,
    )),
    *({"form": form} for form in (
        '{"precision": "float8", "granularity": "layer"}', "{}", "[]", None,
    )),
    *({"coefficients": content} for content in (b"", b"1" * 17, "text", None)),
    *({"profile": content} for content in (b"123", b"1234567", b"\0" * 33, "text")),
    {"profile": bytes(8) + b"\xff" * 24},  # NaN
    {"profile": bytes(8) + np.array([0, 1, 1, 1, 1] + [0] * 7, "<f2").tobytes()},  # correlation 1
    *({"profile": np.array(pair, "<f2").tobytes()} for pair in (
        (np.nan, 0.5), (0.5, np.inf), (-1, 0.5), (0.5, 2),
    )),
    *({"metrics": text} for text in (
        "nothing", '{"loss": NaN}', '{"loss": 1e999}', '{"a":' * 60 + "1" + "}" * 60,
    )),
    {"recipe": "[]"},
    {"recipe": '{"a\\udfff": 1}'},
    {"created_at": b"\xff"},
    {"statistics": b"1234"},
    {"mask": "basis-0", "num_masks": 10**12},
    {"mask": "basis-0"},
    {"name": b"first"},
    {"name": ""},
]  # fmt: skip


RECIPE = {"ones": [1, 1, 1], "seed": 0, "number": 1}
MASKS = [
    *({"recipe": json.dumps(RECIPE | changes)} for changes in (
        {"ones": [10**9, 1, 1]}, {"ones": [-1, 1, 1]}, {"ones": ["1", None, 1]}, {"ones": [1]},
        {"ones": [10.0, 10.0, 10.0]}, {"seed": -1}, {"seed": 2**300}, {"seed": "one"},
        {"number": 2**70},
    )),
    {"recipe": "[" * 9000},
    {"bits": b"\x01" + b"\xff" * 400},
    {"bits": "text"},
    {"digest": "text"},
    {"source": b"\xff"},
    {"name": ""},
]  # fmt: skip
COUNTS = [
    {"masks": 10**15}, {"masks": -1}, {"masks": "text"}, {"tasks": -3}, {"masks_sum": "text"},
    {"tasks_sum": b"1"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("forge", "columns", "words"),
    [
        *((lambda p, **c: forge_task(p, "first", **c), columns, "") for columns in TASKS),
        *((lambda p, **c: forge_mask(p, 4, **c), columns, "mask") for columns in MASKS),
        *((forge_state, columns, "") for columns in COUNTS),
    ],
    ids=[f"{each!r:.40}" for each in (*TASKS, *MASKS, *COUNTS)],
)
def test_forged_rows(path, forge, columns, words):
    forge(path, **columns)
    for verb in EVERY_WAY:
        assert words in refused(path, verb)


def test_few_bytes_that_ask_for_much_memory(path, tmp_path):
    """The seed of a giant network; coefficients of sixty million masks, coded in 88 kB."""
    quick_learner().save(tmp_path / "seed", weights="seed")
    forge_head(tmp_path / "seed", spec(in_features=10**8))
    assert "parameters" in refused(tmp_path / "seed")
    form = {"precision": "coded", "granularity": "layer"}
    form |= {"output_scale": False, "input_scale": False}
    content = bytes([255, 0, 0, 60, 0, 0]) * 3 + bytes(88_000)
    forge_task(path, "first", num_masks=60_000_000, form=json.dumps(form), coefficients=content)
    for verb in EVERY_WAY:
        assert "combines 60000000 masks of 4" in refused(path, verb, seconds=3)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_forged_coefficients(tmp_path, precision):
    """NaN or infinity in place of any number, step or offset, and steps that round to nothing."""
    path, exact = tmp_path / "a.impress", precision in ("float32", "float16")
    learner = small_learner(granularity="unit", output_scale=True, precision=precision)
    learner.save(path)
    with sql(path) as connection:
        query = "SELECT coefficients FROM tasks WHERE mask IS NULL"
        (content,) = connection.execute(query).fetchone()
    part = learner.tasks_.learned("first").coefficients.alpha[0]
    place = 0 if exact else len(part.payload)
    for value in (np.nan, np.inf) if exact else (np.nan, np.inf, 0.0):
        bad = np.array([value], np.float32 if precision == "float32" else np.float16).tobytes()
        forge_task(path, "first", coefficients=content[:place] + bad + content[place + len(bad) :])
        for verb in EVERY_WAY:
            assert "task 'first'" in refused(path, verb)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kept: b"\0\0\xc0\x7f" + kept[4:], "impossible values"),
        (lambda kept: kept[:-4] + b"\0\0\x80\xbf", "impossible values"),
        (lambda kept: None, "norm policy"),
        (lambda kept: kept[:-1], "another network"),
    ],
)
def test_forged_norm_statistics(tmp_path, change, words):
    learner = quick_learner(resnet("per_task"), **QUICKLY).learn_basis("a", pictures(0))
    kept = learner.tasks_.learned("a").statistics.content
    learner.save(tmp_path / "a")
    forge_task(tmp_path / "a", "a", statistics=change(kept))
    for verb in (il.load, verify_store):
        assert words in refused(tmp_path / "a", verb)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kept: kept[:-4], "damaged"),
        (lambda kept: kept + b"\xff" * 8, "bytes are left over"),
        (lambda kept: kept[:20], "has 2 bytes, got 0"),
        (lambda kept: b"", "has 2 bytes, got 0"),
        (lambda kept: kept[:-1], "whole 32-bit words"),
    ],
)
def test_forged_coded_statistics(tmp_path, change, words):
    learner = quick_learner(resnet("per_task"), precision="coded", **QUICKLY)
    kept = learner.learn_basis("a", pictures(0)).tasks_.learned("a").statistics.content
    learner.save(tmp_path / "a")
    forge_task(tmp_path / "a", "a", statistics=change(kept))
    for verb in (il.load, verify_store):
        assert words in refused(tmp_path / "a", verb)


@pytest.mark.parametrize("form", ["{}", '{"statistics":"zipped"}'])
def test_coded_statistics_of_another_form(tmp_path, form):
    learner = quick_learner(resnet("per_task"), precision="coded", **QUICKLY)
    learner.learn_basis("a", pictures(0)).save(tmp_path / "a")
    forge_task(tmp_path / "a", "a", form=form)
    assert "norm statistics of" in refused(tmp_path / "a")


def test_shared_statistics_that_are_missing(tmp_path):
    """From a store that was stripped of them, nothing is computed and nothing imported."""
    target, source = tmp_path / "target", tmp_path / "source"
    learner = quick_learner(resnet("shared"), **QUICKLY).add_random_masks(2).save(target)
    learner.learn_task("a", pictures(0)).save(source)
    with sql(source) as forged:
        forged.execute("DELETE FROM shared")
    forge_state(source, shared=None)
    with hasty(source) as opened:
        for verb in (
            il.load,
            verify_store,
            lambda path: import_tasks(target, path),
            lambda _: opened.logits(pictures()[0], "a"),
            lambda _: opened.learn_task("b", pictures()),
        ):
            assert "norm statistics that all its tasks share are missing" in refused(source, verb)
    assert len(il.load(target).tasks_) == 0


def test_weights_that_are_no_numbers(path):
    backbone = il.load(path).backbone
    backbone.module.get_parameter("0.weight").data[0, 0] = float("nan")
    quick_learner(backbone).save(path, overwrite=True)
    for verb in (il.load, il.open_store, verify_store):
        assert "NaN or infinite" in refused(path, verb)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON tasks BEGIN DELETE FROM masks; END", "tables"),
        ("CREATE VIEW v AS SELECT * FROM tasks", "tables"),
        ("ALTER TABLE tasks ADD COLUMN other TEXT", "tables"),
        ("DROP TABLE tasks", "tables"),
        ("PRAGMA application_id = 7", "no store"),
        ("PRAGMA user_version = 99", "newer impresslearn (format 99"),
        ("PRAGMA user_version = -3", "no format -3"),
    ],
)
def test_foreign_tables_and_marks(path, command, words):
    with sql(path) as connection:
        connection.execute(command)
    for verb in (il.load, il.open_store):
        assert words in refused(path, verb)


def test_what_is_no_store(tmp_path):
    verbs = il.load, il.open_store, verify_store, describe_store
    for name, content in (("a", b""), ("b", b"text"), ("c", os.urandom(9000)), ("d", bytes(4096))):
        (tmp_path / name).write_bytes(content)
        for verb in verbs:
            assert "store" in refused(tmp_path / name, verb)
        assert (tmp_path / name).read_bytes() == content
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "fifo")
    paths = [tmp_path / name for name in ("", "loop", "fifo", "none/a", "x" * 300)]
    for path in [*paths, "/dev/zero", "\0", 7, None]:
        for verb in (*verbs, quick_learner().save):
            refused(path, verb)
    refused(tmp_path / "none")


def test_odd_names(path):
    names = ["café", "cafe\u0301", "a\0b", "a", "/", "..", " ", "'; DROP TABLE tasks; --"]
    names += ["💥" * 200, "x" * 100_000, "a\nb", "%s", "a/1", "NULL"]
    inputs = torch.rand(6, 16), np.array(names[:3] * 2)
    with hasty(path) as learner:
        for name in names:
            learner.learn_task(name, inputs)
        expected = digests(learner)
        with pytest.raises(il.InputError, match="no valid Unicode"):
            learner.learn_task("\ud800", inputs)
        with pytest.raises(il.InputError, match="no valid Unicode"):
            learner.learn_task("x", (torch.rand(4, 16), ["\ud800", "b", "\ud800", "b"]))
    assert list(expected)[3:] == names
    assert digests(path) == expected
    assert set(il.load(path).tasks_["a"].classes) == set(names[:3])


def test_no_pickle(path, monkeypatch):
    """Loading needs no pickle."""
    for name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("unpickled"))
    assert len(list(il.load(path).tasks_.items())) == 3
    with il.open_store(path) as bound:
        assert len(list(bound.tasks_.items())) == 3


def test_long_values_of_ones_own(path, monkeypatch):
    """What is longer than a modest value is read where the file is long enough to have it."""
    monkeypatch.setattr(connections, "MODEST_VALUE", 20_000)
    with hasty(path) as one, il.open_store(path, progress=False) as other:
        for number in range(3):
            label = "long" * 20_000 * (number + 1)
            one.learn_task(f"task {number}", (torch.rand(4, 16), [label, "b", label, "b"]))
            assert digests(other) == digests(one)
        assert len(list(other.tasks_.values())) == 6
    assert len(il.load(path).tasks_) == 6


COPIES = 10_000 if FULL else 100
EXPECTED = ("equal", "is damaged", "no store", "newer", "no task named")


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """A store of 15 tasks, with every kind of row."""
    learner = small_learner(output_scale=True)
    for number in range(12):
        inputs, labels = blobs(number, count=24)
        learner.learn_task(f"task {number} é", (inputs, [f"class {each}" for each in labels]))
    path = tmp_path_factory.mktemp("valid") / "valid.impress"
    learner.save(path)
    return path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="bounds memory as Linux does")
@pytest.mark.parametrize("verb", ["load", "open"])
def test_damaged_copies(pool, valid, tmp_path, verb):
    out = tmp_path / "out"
    pid = pool.start("judge", out, source=valid, folder=tmp_path, count=COPIES, verb=verb)
    outcomes = pool.reported(pid, out)
    assert len(outcomes) == COPIES
    assert [o for o in outcomes if not any(word in o for word in EXPECTED)] == []
    assert sum("is damaged" in outcome for outcome in outcomes) > COPIES / 3


@pytest.mark.parametrize(
    "command",
    [
        "DELETE FROM tasks WHERE name = 'first'",
        "DELETE FROM tasks",
        "DELETE FROM masks WHERE id = 4",
        "UPDATE tasks SET coefficients = (SELECT coefficients FROM tasks WHERE id = 5) "
        "WHERE name = 'first'",
        "UPDATE tasks SET name = 'other' WHERE name = 'first'",
        "UPDATE tasks SET num_masks = num_masks - 1 WHERE name = 'first'",
        "UPDATE masks SET id = 10 - id WHERE id IN (1, 2)",
        "UPDATE documents SET text = text || ' '",
        "DELETE FROM documents",
        "UPDATE tensors SET data = (SELECT data FROM tensors WHERE name = '2.weight')",
        "UPDATE state SET tasks = tasks - 1",
        "DELETE FROM state",
        "DELETE FROM head",
        "UPDATE head SET settings = replace(settings, '0.7', '0.6')",
    ],
)
def test_rows_that_are_not_what_was_committed(valid, tmp_path, command):
    """Pages and indices are sound here: only checksums can tell."""
    path = tmp_path / "a.impress"
    path.write_bytes(valid.read_bytes())
    with sql(path) as connection:
        connection.execute(command)

    def read_all(path):
        with il.open_store(path, progress=False) as learner:
            for name in il.load(valid).tasks_:
                learner.predict(INPUTS, name)

    for verb in (il.load, verify_store, read_all):
        error = il.ImpressLearnError if verb is read_all else il.StoreError
        with pytest.raises(error, match=r"damaged|SHA-256|no task named 'first'"):
            verb(path)


def test_rows_that_were_added(valid, tmp_path):
    """A row with a right checksum of its own, which no commit added."""
    path = tmp_path / "a.impress"
    path.write_bytes(valid.read_bytes())
    il.load(path, progress=False).learn_task("other", blobs(1)).save(tmp_path / "b.impress")
    with sql(path) as connection:
        connection.execute("ATTACH ? AS b", [str(tmp_path / "b.impress")])
        connection.execute("INSERT OR IGNORE INTO documents SELECT * FROM b.documents")
        connection.execute("DELETE FROM tasks WHERE name = 'first'")
        connection.execute("INSERT INTO tasks SELECT * FROM b.tasks WHERE name = 'other'")
    with pytest.raises(il.StoreError, match="its tasks are not those that were committed"):
        il.load(path)
