"""Damaged copies of a store: each gives the same learner or one error in one line."""

import sys

import pytest
from forgery import sql
from storekit import FULL, INPUTS, small_learner

import impresslearn as il
from impresslearn.learner.loading import verify_store
from toys import blobs

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
