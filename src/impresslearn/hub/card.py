"""The model card of a pushed learner: what its file holds, and how to load it.

What is generated stands between two comments, so that the next push renews it and leaves alone what
the owner wrote around it. The licence is the owner's to choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from impresslearn.state.tasks import LearnedTask

BEGIN = "<!-- impresslearn: written anew by every push, down to the end mark -->"
END = "<!-- impresslearn: end -->"
METADATA = """\
---
library_name: impresslearn
tags:
- impresslearn
- continual-learning
- supermasks
---
"""
LISTED_TASKS = 40
LONGEST_NAME = 80


@dataclass
class TaskCount:
    """How many tasks of each role there are, their bytes, and the first of their names."""

    number: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, tasks: Iterable[LearnedTask]) -> TaskCount:
        """Counts tasks in one pass, however many there are."""
        count = cls()
        for task in tasks:
            count.number[task.role] += 1
            count.size[task.role] += task.info().bytes
            if len(count.names) <= LISTED_TASKS:
                count.names.append(task.name)
        return count

    def row(self, role: str) -> str:
        """The table's cell for one role."""
        number = self.number[role]
        if not number:
            return "none"
        return f"{number:,}, {round(self.size[role] / number):,} bytes each on average"


def model_card(
    facts: Mapping[str, Any], tasks: TaskCount, repo_id: str, filename: str, arguments: str
) -> str:
    """The whole card of a repository that has none yet.

    facts: of `describe_store`; arguments: what `from_hub` needs besides the repository, as code.
    """
    parts = [
        BEGIN,
        "A frozen network, masks over its weights, and tasks that each mix the masks with "
        "coefficients of their own, learned with ImpressLearn.",
        _table(facts, tasks, filename),
        _loading(facts, tasks, repo_id, arguments),
        _task_list(tasks),
        END,
    ]
    body = "\n\n".join(part for part in parts if part)
    return f"{METADATA}\n# {repo_id.split('/')[-1]}\n\n{body}\n"


def renewed(card: str, fresh: str) -> str:
    """A card with its generated part taken from `fresh`; one without such a part stays as it is."""
    there, new = _generated(card), _generated(fresh)
    if there is None or new is None:
        return card
    return card[: there.start] + fresh[new] + card[there.stop :]


def _generated(card: str) -> slice | None:
    start, end = card.find(BEGIN), card.rfind(END)
    return slice(start, end + len(END)) if 0 <= start < end else None


def _table(facts: Mapping[str, Any], tasks: TaskCount, filename: str) -> str:
    network = facts["network"]
    weights = "in the file" if facts["weights_bytes"] else "drawn again from their seed"
    shape = network["input_shape"]
    rows = {
        "network": f"{_code(network['name'])}, {network['parameters']:,} parameters, {weights}",
        "input of one example": "any" if shape is None else " × ".join(map(str, shape)),
        "classes of a task": f"up to {network['num_classes']}",
        "norm layers": network["norm"],
        "masks": f"{facts['masks']:,} over {len(network['layers'])} layers",
        "basis tasks (a mask each)": tasks.row("basis"),
        "new tasks (coefficients)": tasks.row("learned"),
        "coefficients stored in": facts["settings"]["precision"],
        "file": f"{_code(filename)}, {facts['file_bytes']:,} bytes",
        "written by": f"impresslearn {facts['library_version']}",
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def _loading(facts: Mapping[str, Any], tasks: TaskCount, repo_id: str, arguments: str) -> str:
    own_module = facts["network"]["spec"] is None
    module = ", module=module" if own_module else ""
    note = "  # a module of the structure that was adapted" if own_module else ""
    use = f"learner.predict(inputs, task={tasks.names[0]!r})" if tasks.names else "learner.bank_"
    return "\n".join(
        [
            "```python",
            "import impresslearn as il  # pip install 'impresslearn[hub]'",
            f"learner = il.from_hub({repo_id!r}{arguments}{module}){note}",
            use,
            "```",
        ]
    )


def _task_list(tasks: TaskCount) -> str:
    if not tasks.names:
        return ""
    listed = ", ".join(_code(name) for name in tasks.names[:LISTED_TASKS])
    more = sum(tasks.number.values()) - LISTED_TASKS
    return f"Tasks: {listed}{f' and {more:,} more' if more > 0 else ''}."


def _code(text: str) -> str:
    """A code span that nothing in the text can end; a pipe would split the table's cell."""
    line = " ".join(text.split()).replace("`", "'").replace("|", "¦")
    return f"`{line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + '…'}`"
