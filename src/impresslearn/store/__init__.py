"""A store: one SQLite file that holds a network, its masks and any number of tasks.

`opening` opens, loads and describes stores, `writing` makes new ones, `editing` changes them.
Below: `backend` binds a learner to the file, `contents` reads and writes `rows` with their
checksums, `database` gives rows and transactions over `connections` to one `file` of the tables in
`schema`; `encoding` turns tasks and masks into rows and back, `network` the frozen network.
"""

from impresslearn.store.editing import compact_store, import_tasks, remove_tasks
from impresslearn.store.opening import (
    CACHE_BYTES,
    Opened,
    describe_store,
    load_state,
    open_state,
)
from impresslearn.store.writing import write_store

__all__ = [
    "CACHE_BYTES",
    "Opened",
    "compact_store",
    "describe_store",
    "import_tasks",
    "load_state",
    "open_state",
    "remove_tasks",
    "write_store",
]
