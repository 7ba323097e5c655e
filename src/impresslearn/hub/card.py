"""The model card of a pushed learner: what its file holds, and how to load it.

The generated part is between two marks. The next push replaces it and leaves alone what the owner
wrote around it.
"""

from __future__ import annotations

from impresslearn import __version__
from impresslearn.learner import ImpressLearner

FILENAME = "model.impress"
BEGIN = "<!-- impresslearn: generated, replaced by every push, up to the end mark -->"
END = "<!-- impresslearn: end -->"
FRONT_MATTER = """---
library_name: impresslearn
tags:
- impresslearn
- continual-learning
- supermasks
---
"""
MAX_LISTED = 40
MAX_NAME = 80


def model_card(
    learner: ImpressLearner,
    tasks: list[str],
    repo_id: str,
    filename: str,
    file_bytes: int,
    revision: str | None = None,
) -> str:
    """The whole card of a repository that has none yet; tasks: those in the file."""
    backbone = learner.backbone
    parameters = sum(weight.numel() for weight in backbone.weights.values())
    table = [f"| network | {_code(backbone.name)}, {parameters:,} parameters |"]
    for role in ("basis", "learned"):
        sizes = [learner.tasks_[name].bytes for name in tasks if learner.tasks_[name].role == role]
        if sizes:
            size = f"{len(sizes):,}, {sum(sizes) / len(sizes):,.0f} bytes each on average"
            table.append(f"| {role} tasks | {size} |")
    table.append(f"| file | {_code(filename)}, {file_bytes:,} bytes |")
    table.append(f"| written by | impresslearn {__version__} |")
    arguments = [repr(repo_id)]
    if filename != FILENAME:
        arguments.append(f"filename={filename!r}")
    if revision is not None:
        arguments.append(f"revision={revision!r}")
    if backbone.spec is None:
        arguments.append("module=module")  # of the same structure as the one that was adapted
    lines = [
        BEGIN,
        "",
        "A frozen network and what each task adds to it, learned with ImpressLearn.",
        "",
        "| | |",
        "|---|---|",
        *table,
        "",
        "```python",
        "import impresslearn as il  # pip install 'impresslearn[hub]'",
        f"learner = il.from_hub({', '.join(arguments)})",
        f"learner.predict(inputs, task={tasks[0]!r})" if tasks else "learner.bank_",
        "```",
        "",
    ]
    if tasks:
        listed = ", ".join(map(_code, tasks[:MAX_LISTED]))
        more = len(tasks) - MAX_LISTED
        lines += [f"Tasks: {listed}" + (f" and {more:,} more." if more > 0 else "."), ""]
    title = f"\n# {repo_id.split('/')[-1]}\n\n"
    return FRONT_MATTER + title + "\n".join([*lines, END, ""])


def renewed(card: str, fresh: str) -> str:
    """A card with its generated part taken from `fresh`; one without such a part stays as it is."""
    start, end = card.find(BEGIN), card.rfind(END)
    if not 0 <= start < end:
        return card
    return card[:start] + fresh[fresh.find(BEGIN) : fresh.rfind(END)] + card[end:]


def _code(text: str) -> str:
    """A code span that nothing in the text can end; a pipe would end the table's cell."""
    line = " ".join(text.split()).replace("`", "'").replace("|", "¦").replace("-->", "--›")
    return f"`{line if len(line) <= MAX_NAME else line[: MAX_NAME - 1] + '…'}`"
