"""One file that holds a network, its masks and any number of tasks, and loses none.

`file` has the verbs. Below it: `journal` binds a learner to the file, `contents` reads and writes
rows with their checksums (`checks`), `database` is the connection, `schema` the tables; `records`,
`networks` and `codec` turn tasks, networks and masks into bytes.
"""

from impresslearn.store.file import (
    Opened,
    compact_store,
    describe_store,
    import_tasks,
    load_ledger,
    open_ledger,
    remove_tasks,
    verify_store,
    write_store,
)

__all__ = [
    "Opened",
    "compact_store",
    "describe_store",
    "import_tasks",
    "load_ledger",
    "open_ledger",
    "remove_tasks",
    "verify_store",
    "write_store",
]
