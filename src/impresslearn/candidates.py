"""The tasks that inference chooses among, from what a learner has committed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from impresslearn.errors import InputError
from impresslearn.inference import Candidate
from impresslearn.ledger import Ledger
from impresslearn.tasks import ROLES, LearnedTask


def candidates(ledger: Ledger, among: str | Sequence[str]) -> list[Candidate]:
    """ "all" tasks, those of role "basis" or "learned", or the named ones.

    Raises InputError for another word and UnknownTaskError for a name that was never learned.
    """
    return [
        Candidate(
            task.name,
            len(task.classes),
            ledger.coefficients(task),
            functools.partial(ledger.view, task),
            task.profile,
        )
        for task in _chosen(ledger, among)
    ]


def _chosen(ledger: Ledger, among: str | Sequence[str]) -> Iterator[LearnedTask]:
    if among == "all":
        return ledger.tasks.all()
    if among in ROLES:
        return (task for task in ledger.tasks.all() if task.role == among)
    if isinstance(among, str):
        raise InputError(f"among must be all, {', '.join(ROLES)} or task names, got {among!r}")
    return map(ledger.tasks.learned, among)
