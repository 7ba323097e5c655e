"""Learning with several processes, on this machine or on a cluster; one process commits the tasks.

A worker has a copy of the learner with only the first task. It learns a chunk of tasks and returns
their rows for the store. The caller's process commits each chunk in one transaction. If a worker
dies, its chunk is learned again. The results do not depend on the number of workers: everything
that tasks share is learned from the first task before any worker starts, and the seed of a task
depends only on its name.
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

CHUNK = 64  # the number of tasks that a worker learns before it returns them
WAITING = 3  # the number of chunks per worker that are read ahead
GROUP_BYTES = 64 * 1024**2  # of inputs of tasks that are trained together
MOST_DEATHS = 5  # the call fails if workers die more often than this
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Chunk = Sequence[tuple[str, Any]]
NoteOf = Callable[[Any], dict[str, Any]]
# Rows of the tasks of a chunk, errors of tasks that could not be learned, and warnings.
Learned = tuple[list[TaskRow], dict[str, ImpressLearnError], list[tuple[str, type[Warning]]]]
Submit = Callable[[Chunk], futures.Future[Learned]]

_learners: dict[str, Any] = {}  # in a worker: its copy of the learner, by key


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
    - note_of: returns the note of a task for its loaded data.
    - committed: called with the name of each task after its commit.

    Raises TasksFailedError at the end if some tasks failed.
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
            name, data = check_name(pair[0]), pair[1]
            if name in new:
                errors[name] = InputError("its name was given twice; the first one counts")
            elif name not in learner.tasks_:
                new.add(name)
                yield name, data

    remaining = new_tasks()
    # The first task is learned here, because it determines what all tasks share.
    while not learner.tasks_ and (pair := next(remaining, None)) is not None:
        try:
            data, note = _loaded(pair[1], note_of)
            learner.learn_task(pair[0], data, note=note)
        except ImpressLearnError as error:
            errors[pair[0]] = error
        else:
            committed(pair[0])
    with _submitting(cloudpickle.dumps(copy_apart(learner)), note_of, workers) as (submit, number):
        chunks = iter(lambda: list(islice(remaining, CHUNK)), [])
        for rows, failed, warned in _results(submit, chunks, WAITING * number):
            for message, category in warned:  # repeated here, where the caller's filters apply
                warn_caller(message, category)
            # Another process may have learned some of the tasks meanwhile: they are left out.
            names = store.commit_many(rows)
            errors |= failed
            for name in names:
                committed(name)
    if errors:
        raise TasksFailedError(errors, len(new))


def copy_apart(learner: Any) -> Any:
    """A silent copy in memory, with all that tasks share, but only the first task."""
    apart = copy.copy(learner)
    apart.progress, apart._store = False, learner._store.with_first_task()
    return apart


def learn_chunk(packed: bytes | str, key: str, note_of: NoteOf | None, chunk: Chunk) -> Learned:
    """Runs in a worker: learns tasks with a copy of the learner and returns their rows.

    - packed: the pickled learner with only its first task, or the path of a file with it.
    - key: identifies the learner, which the worker keeps for the next chunk.
    """
    import cloudpickle

    if key not in _learners:
        torch.set_num_threads(1)
        content = Path(packed).read_bytes() if isinstance(packed, str) else packed
        _learners.clear()
        _learners[key] = cloudpickle.loads(content)
        _learners[key]._store.adds_shared = False
        _learners[key]._store.cache = WeightCache(0)  # no task is used again
    learner = _learners[key]
    errors: dict[str, ImpressLearnError] = {}
    rows: list[TaskRow] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for tasks, notes in _groups(chunk, note_of, errors):
            with suppress(ImpressLearnError):  # the tasks are then learned one by one below
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
    """Groups of tasks to train together, with their notes, by name; adds errors of loading.

    It loads data group by group, so that only one group is in memory.
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
        size += getattr(inputs, "nbytes", GROUP_BYTES)  # data of unknown size may be large
        if size >= GROUP_BYTES or len(tasks) == MOST_ON_CPU:
            yield tasks, notes
            tasks, notes, size = {}, {}, 0
    if tasks:
        yield tasks, notes


def _loaded(data: Any, note_of: NoteOf | None) -> tuple[Any, dict[str, Any] | None]:
    """A task's data and note. Data may be a function of the user, which may raise any error."""
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
    """Yields a function that submits a chunk, and the number of workers."""
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
    # Not joblib's own executor: the whole process shares it, and other code may be using it.
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
    """The results of chunks as they finish; at most `most` chunks are submitted at a time."""
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
