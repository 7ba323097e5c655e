"""A store: one SQLite database that holds a network, its masks and any number of tasks.

`store` is what a learner works on, in memory or in a file; `files` saves, opens and compacts files.
`rows` reads and writes the tables of a `database`; `tasks` and `network` are what they hold.
"""

from impresslearn.store.rows import TaskTable
from impresslearn.store.store import CACHE_BYTES, Store
from impresslearn.store.store_files import (
    backup_store,
    compact_store,
    describe_store,
    list_tasks,
    load_file,
    open_file,
    save_file,
)
from impresslearn.store.tasks import LearnedTask, TaskInfo

__all__ = [
    "CACHE_BYTES",
    "LearnedTask",
    "Store",
    "TaskInfo",
    "TaskTable",
    "backup_store",
    "compact_store",
    "describe_store",
    "list_tasks",
    "load_file",
    "open_file",
    "save_file",
]
