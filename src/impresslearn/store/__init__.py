"""One file that holds a network, its masks and any number of tasks, and loses none.

`file` opens stores, `writing` makes new ones, `editing` changes them. Below: `backend` binds a
learner to the file, `contents` reads and writes rows with their checksums (`checks`), `database`
gives rows and transactions over connections (`lines`, `opening`) to one file (`target`), `schema`
has the tables; `records`, `masks` and `networks` turn tasks, masks and networks into rows and
back, and `plain` reads JSON that anybody may have written.
"""

from impresslearn.store.editing import compact_store, import_tasks, remove_tasks
from impresslearn.store.file import (
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
