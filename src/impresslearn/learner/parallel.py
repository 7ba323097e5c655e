"""Tasks learned by several processes, on this machine or on a cluster; one process commits.

A worker has a copy of the learner without its tasks. It learns a chunk of tasks and sends back rows
as a store keeps them, which the caller's process commits in one transaction per chunk. A worker
that dies loses nothing: its chunk is learned again. What all tasks share is learned from the first
one before any worker starts, and a seed depends on its task's name, so the results do not depend on
the number of workers.
"""

import copy
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from impresslearn.checks import check_integer, check_name, imported
from impresslearn.errors import ImpressLearnError, InputError, TasksFailedError, warn_caller
from impresslearn.files import reason_of
from impresslearn.networks.prediction import WeightCache
from impresslearn.store.tasks import TaskRow
from impresslearn.training.batched import MOST_ON_CPU

CHUNK = 64  # tasks that a worker learns before it sends them
WAITING = 3  # chunks per worker that are read ahead
GROUP_BYTES = 64 * 1024**2  # of inputs that are trained side by side
MOST_DEATHS = 5  # of workers, before the call fails
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Chunk = Sequence[tuple[str, Any]]
NoteOf = Callable[[Any], dict[str, Any]]
# The rows of a chunk's tasks, the errors of those that could not be learned, and warnings.
Learned = tuple[list[TaskRow], dict[str, ImpressLearnError], list[tuple[str, type[Warning]]]]
Submit = Callable[[Chunk], futures.Future[Learned]]

_learners: dict[str, Any] = {}  # of this worker


def learn_in_parallel(
    learner: Any,
    tasks: Any,
    workers: int | str | futures.Executor,
    note_of: NoteOf | None = None,
    committed: Callable[[str], None] = lambda _: None,
) -> None:
    """Learns the tasks that the store does not have yet.

    - tasks, workers: as in `ImpressLearner.learn_tasks`; an executor gets the learner with each
      chunk.
    - note_of: gives the note of a task from its loaded data.
    - committed: is called with the name of each task that is in the store.

    Raises TasksFailedError after all others were learned.
    """
    import cloudpickle

    if workers != "ray" and not isinstance(workers, futures.Executor):
        workers = check_integer("workers", workers, 1)
    if not isinstance(tasks, Iterable):
        kind = type(tasks).__name__
        raise InputError(f"tasks must be a mapping or pairs of names and data, got {kind}")
    store = learner._store
    store.database.check_writable()
    errors: dict[str, ImpressLearnError] = {}
    new: set[str] = set()

    def new_tasks() -> Iterator[tuple[str, Any]]:
        for pair in tasks.items() if isinstance(tasks, Mapping) else tasks:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InputError(f"tasks must be pairs (name, data), got {type(pair).__name__}")
            name, data = pair
            if check_name(name) in new:
                errors[name] = InputError("its name was given twice; the first one counts")
            elif name not in learner.tasks_:
                new.add(name)
                yield name, data

    remaining = new_tasks()
    # The first task decides what all others share.
    while learner.tasks_.first() is None and (pair := next(remaining, None)) is not None:
        try:
            data, note = _loaded(pair[1], note_of)
            learner.learn_task(pair[0], data, note=note)
        except ImpressLearnError as error:
            errors[pair[0]] = error
        else:
            committed(pair[0])
    alone = copy.copy(learner)
    alone.progress, alone._store = False, store.with_first_task()
    with _submitting(cloudpickle.dumps(alone), note_of, workers) as (submit, number):
        chunks = iter(lambda: list(islice(remaining, CHUNK)), [])
        for rows, failed, warned in _results(submit, chunks, WAITING * number):
            for message, category in warned:  # in this process, where the caller's filters hold
                warn_caller(message, category)
            # Another process may have learned some of them meanwhile.
            rows = [row for row in rows if row.name not in learner.tasks_]
            store.commit_many(rows)
            errors |= failed
            for row in rows:
                committed(row.name)
    if errors:
        raise TasksFailedError(errors, len(new))


def learn_chunk(packed: bytes | str, key: str, note_of: NoteOf | None, chunk: Chunk) -> Learned:
    """What a worker does: learns tasks with a copy of the learner, and keeps none of them.

    - packed: the learner with its first task alone, pickled, or the file with that.
    - key: of this learner, which the worker keeps for the next chunk.
    """
    import cloudpickle

    if key not in _learners:
        torch.set_num_threads(1)
        content = Path(packed).read_bytes() if isinstance(packed, str) else packed
        _learners.clear()
        _learners[key] = cloudpickle.loads(content)
        _learners[key]._store.adds_shared = False
        _learners[key]._store.cache = WeightCache(0)  # tasks leave at once
    learner = _learners[key]
    errors: dict[str, ImpressLearnError] = {}
    rows: list[TaskRow] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for tasks, notes in _groups(chunk, note_of, errors):
            with suppress(ImpressLearnError):  # one by one says below which of them fails
                learner._trainer.learn_tasks(tasks, None, notes, batched=True)
            for name, data in tasks.items():
                try:
                    if name not in learner.tasks_:
                        learner.learn_task(name, data, note=notes[name])
                    rows += learner._store.rows.task_rows(name)
                    learner.remove_task(name)
                except ImpressLearnError as error:
                    errors[name] = error
    return rows, errors, [(str(each.message), each.category) for each in caught]


def _groups(
    chunk: Chunk, note_of: NoteOf | None, errors: dict[str, ImpressLearnError]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Tasks to be trained side by side, and their notes, by name; adds errors of loading.

    A full group is trained before more data are loaded.
    """
    tasks: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    size = 0
    for name, given in chunk:
        try:
            data, notes[name] = _loaded(given, note_of)
        except ImpressLearnError as error:
            errors[name] = error
            continue
        tasks[name] = data
        inputs = data[0] if isinstance(data, tuple) and data else data
        inputs = getattr(inputs, "inputs", inputs)  # of Examples
        size += getattr(inputs, "nbytes", GROUP_BYTES)  # other data are large, for all we know
        if size >= GROUP_BYTES or len(tasks) == MOST_ON_CPU:
            yield tasks, notes
            tasks, notes, size = {}, {}, 0
    if tasks:
        yield tasks, notes


def _loaded(data: Any, note_of: NoteOf | None) -> tuple[Any, dict[str, Any] | None]:
    """A task's data, which may be a function of the user's that raises anything, and its note."""
    if callable(data) and not hasattr(data, "__len__"):
        try:
            data = data()
        except ImpressLearnError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise InputError(f"its data cannot be loaded: {kind}: {reason_of(error)}") from None
    return data, note_of(data) if note_of else None


@contextmanager
def _submitting(
    packed: bytes, note_of: NoteOf | None, workers: int | str | futures.Executor
) -> Iterator[tuple[Submit, int]]:
    """Gives what submits a chunk, and the number of workers."""
    key = uuid.uuid4().hex
    if isinstance(workers, futures.ThreadPoolExecutor):
        line = "threads of one process would wait for each other: give a number of processes"
        raise InputError(f"workers must be an executor of other processes; {line}")
    if isinstance(workers, futures.Executor):
        number = getattr(workers, "_max_workers", None) or 8
        yield lambda chunk: workers.submit(learn_chunk, packed, key, note_of, chunk), number
        return
    if workers == "ray":
        ray = imported("ray", "workers='ray' needs Ray", "ray")
        if not ray.is_initialized():
            try:
                ray.init()
            except ConnectionError as error:
                raise InputError(f"cannot connect to a Ray cluster: {reason_of(error)}") from None
        placed = ray.put(packed)
        remote: Any = ray.remote(num_cpus=1, max_retries=MOST_DEATHS)(learn_chunk)
        number = int(ray.cluster_resources().get("CPU", 1))
        yield lambda chunk: remote.remote(placed, key, note_of, chunk).future(), number
        return
    # Not joblib's executor, which is one for the whole process: others may be using it.
    from joblib.externals.loky import ProcessPoolExecutor

    number = int(workers)
    pools = [ProcessPoolExecutor(number, env=ONE_THREAD)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, key)
        file.write_bytes(packed)

        def submit(chunk: Chunk) -> futures.Future[Learned]:
            call = learn_chunk, str(file), key, note_of, chunk
            try:
                return pools[-1].submit(*call)
            except futures.BrokenExecutor:  # it has lost a process
                pools.append(ProcessPoolExecutor(number, env=ONE_THREAD))
                return pools[-1].submit(*call)

        try:
            yield submit, number
        finally:
            for pool in pools:
                pool.shutdown(kill_workers=True)


def _results(submit: Submit, chunks: Iterator[Chunk], most: int) -> Iterator[Learned]:
    """What became of chunks, as they are finished; at most this many wait."""
    waiting: dict[futures.Future[Learned], Chunk] = {}
    lost: list[Chunk] = []
    deaths = 0
    while True:
        for chunk in [*lost, *islice(chunks, most - len(waiting) - len(lost))]:
            waiting[submit(chunk)] = chunk
        if not waiting:
            return
        done, _ = futures.wait(waiting, return_when=futures.FIRST_COMPLETED)
        lost = []
        for future in done:
            chunk = waiting.pop(future)
            try:
                yield future.result()
            except futures.BrokenExecutor:
                lost.append(chunk)
        deaths += bool(lost)
        if deaths > MOST_DEATHS:
            raise InputError(f"workers died {deaths} times, perhaps for lack of memory")
