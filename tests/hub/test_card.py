import pytest

from impresslearn.hub.card import BEGIN, END, LISTED_TASKS, TaskCount, model_card, renewed
from impresslearn.state.tasks import LearnedTask
from impresslearn.store import describe_store
from toys import blobs, quick_learner, resnet


@pytest.fixture(scope="module")
def learner():
    learner = quick_learner(precision="int5").learn_basis("first", blobs(0))
    return learner.learn_task("new", blobs(1)).learn_task("other", blobs(2))


def card_of(learner, tmp_path, tasks=None, arguments="", **how):
    path = tmp_path / "store.impress"
    learner.save(path, **how)
    count = TaskCount.of(learner.tasks_.all() if tasks is None else tasks)
    return model_card(describe_store(path), count, "someone/digits", "model.impress", arguments)


def test_says_what_the_file_holds(learner, tmp_path):
    card = card_of(learner, tmp_path)
    mask, new = (learner.tasks_[name].bytes for name in ("first", "new"))
    size = (tmp_path / "store.impress").stat().st_size
    for line in (
        "# someone/digits".replace("someone/", ""),
        "| network | `lenet_300_100`, 708 parameters, in the file |",
        "| input of one example | 16 |",
        "| masks | 1 over 3 layers |",
        f"| basis tasks (a mask each) | 1, {mask:,} bytes each on average |",
        f"| new tasks (coefficients) | 2, {new:,} bytes each on average |",
        "| coefficients stored in | int5 |",
        f"| file | `model.impress`, {size:,} bytes |",
        "learner = il.from_hub('someone/digits')",
        "learner.predict(inputs, task='first')",
        "Tasks: `first`, `new`, `other`.",
    ):
        assert line in card.splitlines()
    assert "license" not in card
    assert str(tmp_path) not in card


def test_says_how_to_load_what_needs_more(learner, tmp_path):
    card = card_of(learner, tmp_path, arguments=", revision='v2'", weights="seed")
    assert "drawn again from their seed" in card
    assert "il.from_hub('someone/digits', revision='v2')" in card


def test_learner_without_tasks(tmp_path):
    card = card_of(quick_learner(resnet("batch")), tmp_path)
    assert "| basis tasks (a mask each) | none |" in card
    assert "Tasks:" not in card
    assert "predict" not in card


def test_names_a_few_dozen_tasks_at_most(learner, tmp_path):
    tasks = [LearnedTask(f"task-{i}", (0, 1), 1) for i in range(LISTED_TASKS + 2000)]
    card = card_of(learner, tmp_path, tasks)
    assert f"`task-{LISTED_TASKS - 1}` and 2,000 more." in card
    assert f"task-{LISTED_TASKS}`" not in card
    exactly = card_of(learner, tmp_path, tasks[:LISTED_TASKS], overwrite=True)
    assert f"`task-{LISTED_TASKS - 1}`." in exactly


def test_names_cannot_break_the_card(learner, tmp_path):
    hostile = f"a`b|c\n\n# d {END} " + "e" * 200
    card = card_of(learner, tmp_path, [LearnedTask(hostile, (0, 1), 1)])
    listed = next(line for line in card.splitlines() if line.startswith("Tasks: "))
    assert listed.count("`") == 2
    assert "a'b¦c # d" in listed
    assert len(listed) < 100
    plain = card_of(learner, tmp_path, overwrite=True)
    assert renewed(card, plain) == plain


def test_renewing_keeps_what_is_around():
    old = f"---\nlicense: mit\n---\n# Mine\n{BEGIN}\nold\n{END}\nAfter."
    fresh = f"---\n---\n# digits\n\n{BEGIN}\nnew\n{END}\n"
    assert renewed(old, fresh) == old.replace("old", "new")
    for own in ("no mark", f"{BEGIN} only", f"{END} before {BEGIN}"):
        assert renewed(own, fresh) == own
