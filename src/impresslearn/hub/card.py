"""The model card of a pushed learner: what its file holds, and how to load it.

The text is `card.md`. What is generated stands between two comments, so that the next push renews
it and leaves alone what the owner wrote around it. The licence is the owner's to choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from impresslearn.state.tasks import LearnedTask

FILENAME = "model.impress"
BEGIN = "<!-- impresslearn: written anew by every push, down to the end mark -->"
END = "<!-- impresslearn: end -->"
TAGS = ["impresslearn", "continual-learning", "supermasks"]
LISTED_TASKS = 40
LONGEST_NAME = 80


def model_card(
    facts: Mapping[str, Any],
    tasks: Iterable[LearnedTask],
    repo_id: str,
    filename: str,
    revision: str | None = None,
) -> str:
    """The whole card of a repository that has none yet; facts: of `describe_store`."""
    from huggingface_hub import ModelCard, ModelCardData

    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    names: list[str] = []
    for task in tasks:  # one by one: a store may hold very many
        count[task.role] += 1
        size[task.role] += task.info().bytes
        if len(names) < LISTED_TASKS:
            names.append(task.name)
    needed = {"filename": filename if filename != FILENAME else None, "revision": revision}
    given = [f"{name}={value!r}" for name, value in needed.items() if value is not None]
    card = ModelCard.from_template(
        ModelCardData(library_name="impresslearn", tags=TAGS),
        template_path=str(Path(__file__).with_name("card.md")),
        begin=BEGIN,
        end=END,
        title=repo_id.split("/")[-1],
        facts=facts,
        network=_code(facts["network"]["name"]),
        file=_code(filename),
        count=count,
        size=size,
        arguments=", ".join([repr(repo_id), *given]),
        first=repr(names[0]) if names else None,
        listed=[_code(name) for name in names],
        more=count.total() - LISTED_TASKS,
    )
    return str(card)


def renewed(card: str, fresh: str) -> str:
    """A card with its generated part taken from `fresh`; one without such a part stays as it is."""
    start, end = card.find(BEGIN), card.rfind(END)
    if not 0 <= start < end:
        return card
    generated = fresh[fresh.find(BEGIN) : fresh.rfind(END)]
    return card[:start] + generated + card[end:]


def _code(text: str) -> str:
    """A code span that nothing in the text can end; a pipe would split the table's cell."""
    line = " ".join(text.split()).replace("`", "'").replace("|", "¦")
    return f"`{line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + '…'}`"
