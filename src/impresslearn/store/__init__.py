"""A store: one SQLite database that holds a network, its masks and any number of tasks.

`store` is what a learner works on, in memory or in a file; `files` saves, opens and edits files.
Below: `rows` reads and writes the tables of a `database`; `encoding` turns `tasks` and masks into
rows and back, `network` the frozen network.
"""

from impresslearn.store.files import (
    compact_store,
    describe_store,
    import_tasks,
    load_file,
    open_file,
    remove_tasks,
    save_file,
)
from impresslearn.store.store import CACHE_BYTES, Store
from impresslearn.store.tasks import LearnedTask, TaskInfo, TaskTable

__all__ = [
    "CACHE_BYTES",
    "LearnedTask",
    "Store",
    "TaskInfo",
    "TaskTable",
    "compact_store",
    "describe_store",
    "import_tasks",
    "load_file",
    "open_file",
    "remove_tasks",
    "save_file",
]
