"""Labelled examples, whatever form they come in.

`as_examples` turns tensors, arrays, `Dataset`, `DataLoader` and image folders into one of two
things that the training loop can draw batches from: `Examples` (everything in one tensor, batches
are index slices; the fast path) or `StreamedExamples` (read anew each epoch by a `DataLoader`,
where the data do not fit in memory). Streams produce `Examples`; learners consume them. Labels stay
as the user gave them (integers or strings); `encode_labels` maps them to 0..K-1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)

from impresslearn.errors import InputError, MissingDependencyError

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
Label = int | str

MEMORY_LIMIT = 4 * 1024**3
"""Bytes of inputs up to which a `Dataset` is read into one tensor."""


class BatchSource(Protocol):
    """What the training loop draws from."""

    def __len__(self) -> int: ...

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of (inputs, class indices); shuffled if a generator is given, else even parts."""
        ...


def even_parts(count: int, most: int) -> list[int]:
    """Sizes, alike up to one, that `count` rows are computed in, `most` at a time.

    Where norms use the statistics of the batch, a small remainder would be computed with those of a
    few rows, and one row has none: with `most` >= 2 no part is a single row, if need be by one more
    than `most`.
    """
    parts = -(-count // most)
    if most > 1:
        parts = min(parts, count // 2)
    size, larger = divmod(count, max(1, parts))
    return [size + 1] * larger + [size] * (max(1, parts) - larger)


@dataclass(frozen=True)
class Examples:
    """Inputs and labels held in memory.

    inputs: (n, ...) floating point; labels: (n,) array of integers or strings; augment: a
    function of (batch, generator) applied to training batches only.
    """

    inputs: Tensor
    labels: np.ndarray
    augment: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Sequence[int] | np.ndarray | Tensor) -> Examples:
        """The examples at these positions, in this order."""
        index = torch.as_tensor(np.asarray(indices), dtype=torch.long)
        return replace(self, inputs=self.inputs[index], labels=self.labels[index.numpy()])


@dataclass(frozen=True)
class StreamedExamples:
    """Examples that a `Dataset` reads from disk each epoch; labels are known beforehand."""

    dataset: Dataset
    labels: np.ndarray
    workers: int = 0

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TensorBatches:
    """Batches as index slices of tensors that already lie on the device."""

    inputs: Tensor
    targets: Tensor
    augment: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        if generator is None:
            sizes = even_parts(len(self), batch_size)
            yield from zip(self.inputs.split(sizes), self.targets.split(sizes), strict=True)
            return
        order = torch.randperm(len(self), generator=generator).to(self.inputs.device)
        for index in order.split(batch_size):
            inputs = self.inputs.index_select(0, index)  # twice as fast as indexing
            if self.augment is not None:
                inputs = self.augment(inputs, generator)
            yield inputs, self.targets[index]


@dataclass(frozen=True)
class StreamedBatches:
    """Batches read by a `DataLoader`, moved to the device one at a time."""

    source: StreamedExamples
    index_of: dict[Label, int]
    device: torch.device

    def __len__(self) -> int:
        return len(self.source)

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        how: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "generator": generator}
        if generator is None:
            parts = torch.arange(len(self)).split(even_parts(len(self), batch_size))
            how = {"batch_sampler": [part.tolist() for part in parts]}
        loader = DataLoader(
            self.source.dataset,
            num_workers=self.source.workers,
            pin_memory=self.device.type == "cuda",
            **how,
        )
        try:
            for inputs, labels in loader:
                targets = encode_labels(label_array(labels), self.index_of)
                yield (
                    as_inputs(inputs).to(self.device, non_blocking=True),
                    targets.to(self.device, non_blocking=True),
                )
        except InputError as error:
            # A worker process puts its traceback in front of the line.
            line = str(error).strip().rsplit("\n", 1)[-1]
            raise InputError(line.removeprefix("impresslearn.errors.InputError: ")) from None


def as_inputs(values: Any) -> Tensor:
    """Inputs as a float tensor: uint8 pixels are scaled to [0, 1], other numbers become float32.

    Half precision stays as it is. Raises InputError for values that are no numbers, and for NaN or
    infinite ones.
    """
    try:
        if isinstance(values, (list, tuple)) and values and isinstance(values[0], Tensor):
            values = torch.stack(list(values))
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"inputs must be a numeric tensor or array, got {type(values).__name__}: "
            f"{_first_line(error)}"
        ) from None
    if tensor.dtype == torch.uint8:
        return tensor.float() / 255
    if tensor.is_complex():
        raise InputError("inputs must be real numbers, got complex ones")
    tensor = tensor.detach()
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        tensor = tensor.float()
    # One reduction instead of a mask as large as the data: a sum is finite unless a value is not
    # (or the sum overflows, which the exact check then settles).
    if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor)).sum())
        raise InputError(f"inputs hold {bad} NaN or infinite values; clean them first")
    return tensor


def label_array(labels: Any) -> np.ndarray:
    """Labels as a (n,) array of int64 or of strings; whole floats are taken as integers."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"labels must be one per example, shape (n,), got shape {array.shape}")
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array):
        array = array.astype(str)
    if array.dtype.kind in "US":
        return array.astype(str)
    if array.dtype.kind in "iub":
        return array.astype(np.int64)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == array.round()).all():
        return array.astype(np.int64)
    raise InputError(f"labels must be integers or strings, got {array.dtype} values")


def classes_of(labels: np.ndarray) -> tuple[Label, ...]:
    """The distinct labels, sorted, as plain Python values."""
    return tuple(np.unique(labels).tolist())


def task_classes(labels: np.ndarray, outputs: int) -> tuple[Label, ...]:
    """The classes of a training set, for a network with so many outputs.

    Raises InputError for a single class, and for more classes than outputs.
    """
    classes = classes_of(labels)
    if len(classes) < 2:
        raise InputError(f"a task needs at least two classes, got only {classes[0]!r}")
    if len(classes) > outputs:
        raise InputError(
            f"the task has {len(classes)} classes, the backbone only {outputs} outputs; "
            f"create it with num_classes={len(classes)}"
        )
    return classes


def encode_labels(labels: np.ndarray, index_of: dict[Label, int]) -> Tensor:
    """(n,) int64 class indices. Raises InputError that names a label that is not in the map."""
    try:
        return torch.tensor([index_of[label] for label in labels.tolist()], dtype=torch.long)
    except KeyError as error:
        known = ", ".join(map(repr, list(index_of)[:8])) + (", …" if len(index_of) > 8 else "")
        raise InputError(
            f"label {error.args[0]!r} was never seen by this task; it knows {known}"
        ) from None


def as_examples(
    data: Any, *, memory_limit: int = MEMORY_LIMIT, workers: int = 2
) -> Examples | StreamedExamples:
    """Labelled examples from any of the usual forms.

    data: `Examples`; a pair (inputs, labels) of tensors, arrays or lists; a map-style `Dataset` of
    (input, label); a `DataLoader` (its data set is read, its batch size and order are not used; a
    loader with a sampler or collate function of its own, or over an iterable data set, is read
    once, whole, and so is an `IterableDataset`); the path of an image folder (one sub-folder a
    class; needs the extra `vision`).
    A `Dataset` whose inputs exceed `memory_limit` bytes is streamed by `workers` processes instead
    of held in memory.
    Raises InputError for empty data, unequal lengths, NaN or infinite inputs, and labels that are
    neither integers nor strings.
    """
    if isinstance(data, (Examples, StreamedExamples)):
        examples: Examples | StreamedExamples = data
        if isinstance(data, Examples):
            examples = replace(data, inputs=as_inputs(data.inputs), labels=label_array(data.labels))
    elif isinstance(data, (str, Path)):
        examples = _from_dataset(_image_folder(Path(data)), memory_limit, workers)
    elif isinstance(data, DataLoader):
        if _draws_everything(data):
            examples = _from_dataset(data.dataset, memory_limit, data.num_workers)
        else:
            examples = _from_batches(data)
    elif isinstance(data, IterableDataset):
        examples = _from_batches(DataLoader(data, batch_size=256))
    elif isinstance(data, Dataset):
        examples = _from_dataset(data, memory_limit, workers)
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        examples = Examples(as_inputs(data[0]), label_array(data[1]))
    else:
        raise InputError(
            "data must be a pair (inputs, labels), a Dataset, a DataLoader, the path of an image "
            f"folder or Examples, got {type(data).__name__}"
        )
    if len(examples) == 0:
        raise InputError("the data hold no example")
    if isinstance(examples, Examples) and examples.inputs.dim() == 0:
        raise InputError("inputs must be one per example, shape (n, ...), got a single number")
    if isinstance(examples, Examples) and len(examples.inputs) != len(examples.labels):
        raise InputError(
            f"{len(examples.inputs)} inputs came with {len(examples.labels)} labels; "
            "every input needs one label"
        )
    return examples


def to_batches(
    examples: Examples | StreamedExamples, classes: Sequence[Label], device: torch.device
) -> TensorBatches | StreamedBatches:
    """A batch source on the device, with labels encoded by their position in `classes`."""
    index_of = {label: index for index, label in enumerate(classes)}
    if isinstance(examples, StreamedExamples):
        return StreamedBatches(examples, index_of, device)
    targets = encode_labels(examples.labels, index_of)
    return TensorBatches(examples.inputs.to(device), targets.to(device), examples.augment)


def _draws_everything(loader: DataLoader) -> bool:
    """Whether a loader gives its whole data set as it is: no selection, no batches of its own."""
    return (
        hasattr(loader.dataset, "__len__")
        and hasattr(loader.dataset, "__getitem__")
        and type(loader.sampler) in (SequentialSampler, RandomSampler)
        and type(loader.batch_sampler) in (BatchSampler, type(None))
        and loader.collate_fn in (default_collate, default_convert)
    )


def _from_batches(batches: Iterable) -> Examples:
    pairs = []
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise InputError("a DataLoader must give pairs (inputs, labels)")
        pairs.append((as_inputs(batch[0]), label_array(batch[1])))
    if not pairs:
        raise InputError("the data hold no example")
    shapes = {tuple(inputs.shape[1:]) for inputs, _ in pairs}
    if len(shapes) > 1:
        raise InputError(
            f"the inputs of a DataLoader must share one shape, got {sorted(shapes)[:3]}"
        )
    return Examples(torch.cat([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs]))


def _from_dataset(dataset: Dataset, memory_limit: int, workers: int) -> Examples | StreamedExamples:
    count = len(dataset)  # type: ignore[arg-type]
    if count == 0:
        raise InputError("the data hold no example")
    tensors = getattr(dataset, "tensors", None)
    if tensors is not None and len(tensors) == 2:  # a TensorDataset: nothing to read
        return Examples(as_inputs(tensors[0]), label_array(tensors[1]))
    first = dataset[0]
    if not isinstance(first, (tuple, list)) or len(first) != 2:
        raise InputError("a Dataset must give pairs (input, label)")
    size = as_inputs(first[0]).numel() * 4
    if size * count > memory_limit:
        labels = getattr(dataset, "targets", None)
        if labels is None:
            labels = [dataset[i][1] for i in range(count)]
        return StreamedExamples(dataset, label_array(labels), workers)
    pairs = [dataset[i] for i in range(count)]
    shapes = {tuple(as_inputs(x).shape) for x, _ in pairs}
    if len(shapes) > 1:
        raise InputError(f"the inputs of a Dataset must share one shape, got {sorted(shapes)[:3]}")
    inputs = torch.stack([as_inputs(x) for x, _ in pairs])
    return Examples(inputs, label_array([y for _, y in pairs]))


def _image_folder(path: Path) -> Dataset:
    if not path.is_dir():
        raise InputError(f"no image folder at {path}; expected one sub-folder a class")
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError(
            "reading image folders needs pillow: pip install 'impresslearn[vision]'"
        ) from None
    return _ImageFolder(path, Image)


class _ImageFolder(Dataset):
    """CLASS/IMAGE files as (3, H, W) float tensors in [0, 1]; labels are the folder names."""

    suffixes = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})

    def __init__(self, path: Path, image_module: Any) -> None:
        self._image = image_module
        self.files = sorted(
            file
            for file in path.glob("*/*")
            if file.is_file() and file.suffix.lower() in self.suffixes
        )
        self.targets = [file.parent.name for file in self.files]
        if not self.files:
            raise InputError(f"no image below {path}; expected {path}/CLASS/IMAGE files")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        try:
            with self._image.open(self.files[index]) as image:
                pixels = np.asarray(image.convert("RGB"))
        except OSError as error:
            raise InputError(
                f"cannot read the image {self.files[index]}: {_first_line(error)}"
            ) from None
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255, self.targets[index]


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]
