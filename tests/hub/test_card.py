"""The model card says what the file holds and how to load it, and keeps what the owner wrote."""

import pytest

from impresslearn.hub.card import BEGIN, END, LISTED_TASKS, model_card, renewed
from impresslearn.state.tasks import LearnedTask
from impresslearn.store import describe_store
from toys import quick_learner


@pytest.fixture
def card_of(tmp_path):
    def make(learner, tasks=None, revision=None, **saving):
        path = tmp_path / "store.impress"
        learner.save(path, overwrite=True, **saving)
        tasks = learner.tasks_.all() if tasks is None else tasks
        return model_card(describe_store(path), tasks, "someone/digits", "model.impress", revision)

    return make


def test_says_what_the_file_holds_and_how_to_load_it(learner, card_of, tmp_path):
    card = card_of(learner)
    mask = (learner.tasks_["first"].bytes + learner.tasks_["second"].bytes) / 2
    size = (tmp_path / "store.impress").stat().st_size
    for line in (
        "# digits",
        "| network | `lenet_300_100`, 708 parameters, in the file |",
        "| input of one example | 16 |",
        "| masks | 2 over 3 layers |",
        f"| basis tasks (a mask each) | 2, {round(mask):,} bytes each on average |",
        f"| new tasks (coefficients) | 1, {learner.tasks_['new'].bytes:,} bytes each on average |",
        "| coefficients stored in | int5 |",
        f"| file | `model.impress`, {size:,} bytes |",
        "learner = il.from_hub('someone/digits')",
        "learner.predict(inputs, task='first')",
        "Tasks: `first`, `second`, `new`.",
    ):
        assert line in card.splitlines()
    assert str(tmp_path) not in card
    card = card_of(learner, revision="v2", weights="seed")
    assert "drawn again from their seed" in card
    assert "il.from_hub('someone/digits', revision='v2')" in card
    card = card_of(quick_learner())
    assert "| basis tasks (a mask each) | none |" in card
    assert "Tasks:" not in card
    assert "predict" not in card


def test_names_a_few_dozen_tasks_at_most(learner, card_of):
    tasks = [LearnedTask(f"task-{i}", (0, 1), 1) for i in range(LISTED_TASKS + 2000)]
    card = card_of(learner, tasks)
    assert f"`task-{LISTED_TASKS - 1}` and 2,000 more." in card
    assert f"task-{LISTED_TASKS}`" not in card
    assert f"`task-{LISTED_TASKS - 1}`." in card_of(learner, tasks[:LISTED_TASKS])


def test_names_cannot_break_the_card(learner, card_of):
    hostile = f"a`b|c\n\n# d {END} {{{{ x }}}}" + "e" * 200
    card = card_of(learner, [LearnedTask(hostile, (0, 1), 1)])
    listed = next(line for line in card.splitlines() if line.startswith("Tasks: "))
    assert listed.count("`") == 2
    assert "a'b¦c # d" in listed
    assert len(listed) < 100
    plain = card_of(learner)
    assert renewed(card, plain) == plain


@pytest.mark.parametrize("custom", ["no mark", f"{BEGIN} only", f"{END} before {BEGIN}"])
def test_a_card_without_a_generated_part_stays_as_it_is(custom):
    assert renewed(custom, f"# digits\n{BEGIN}\nnew\n{END}\n") == custom
