"""A store: one SQLite database that holds a network, its masks and any number of tasks.

`store` is what a learner works on, in memory or in a file; `files` saves, opens and compacts files.
`rows` reads and writes the tables of a `database`; `tasks` and `network` are what they hold.
"""

from impresslearn.store.rows import TaskTable as TaskTable
from impresslearn.store.store import CACHE_BYTES as CACHE_BYTES
from impresslearn.store.store import Store as Store
from impresslearn.store.store_files import backup_store as backup_store
from impresslearn.store.store_files import compact_store as compact_store
from impresslearn.store.store_files import describe_store as describe_store
from impresslearn.store.store_files import diff_stores as diff_stores
from impresslearn.store.store_files import list_tasks as list_tasks
from impresslearn.store.store_files import open_file as open_file
from impresslearn.store.store_files import save_file as save_file
from impresslearn.store.tasks import StoredTask as StoredTask
from impresslearn.store.tasks import TaskInfo as TaskInfo
