"""Which job is next: the first one, in the order given, whose needs are all done.

An executor takes jobs until there is none, and says when one is done. Every job and every need is
looked at once, so ten thousand jobs cost no more than their number.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from impresslearn.experiments.jobs import Job


class Schedule:
    """The jobs that are still to be done; true while there are any, taken ones included.

    waiting: needed jobs first; a need that is not among them is done already.
    """

    def __init__(self, waiting: Sequence[Job]) -> None:
        self._jobs = list(waiting)
        self._positions = {job.key: position for position, job in enumerate(self._jobs)}
        self._users: dict[str, list[int]] = {}
        self._lacking = []
        for position, job in enumerate(self._jobs):
            lacking = {need.key for need in job.needs if need.key in self._positions}
            self._lacking.append(len(lacking))
            for key in lacking:
                self._users.setdefault(key, []).append(position)
        self._ready = [position for position, count in enumerate(self._lacking) if count == 0]
        self._left = len(self._jobs)

    def __bool__(self) -> bool:
        return self._left > 0

    def take(self) -> Job | None:
        """The next job, which is not given again; None while all others wait for taken ones."""
        return self._jobs[heapq.heappop(self._ready)] if self._ready else None

    def done(self, job: Job) -> None:
        """A taken job's outcome is kept."""
        self._left -= 1
        for position in self._users.pop(job.key, ()):
            self._lacking[position] -= 1
            if self._lacking[position] == 0:
                heapq.heappush(self._ready, position)
