"""Batches of examples for the training loop, on its device, with class indices as labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from impresslearn.data.examples import (
    Augmentation,
    Examples,
    Inputs,
    StreamedExamples,
    drawing,
    raw,
)
from impresslearn.data.labels import Label, encode_labels, label_array
from impresslearn.errors import ImpressLearnError


class BatchSource(Protocol):
    """Examples that the training loop draws batches from."""

    def __len__(self) -> int: ...

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor | Inputs, Tensor]]:
        """Batches (inputs, class indices): shuffled if there is a generator, else in even parts."""


def even_parts(count: int, most: int) -> list[int]:
    """Sizes (equal up to 1) of parts of at most `most` rows; `most` + 1 to avoid a single row."""
    # Under the norm policy "batch", small parts have bad statistics, and a single row has none.
    parts = -(-count // most)
    if most > 1:
        parts = min(parts, count // 2)
    parts = max(1, parts)
    size, larger = divmod(count, parts)
    return [size + 1] * larger + [size] * (parts - larger)


@dataclass(frozen=True)
class TensorBatches:
    """Batches as index slices of tensors on the device."""

    inputs: Tensor | Inputs
    targets: Tensor
    augment: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor | Inputs, Tensor]]:
        if generator is None:
            sizes = even_parts(len(self), batch_size)
            yield from zip(self.inputs.split(sizes), self.targets.split(sizes), strict=True)
            return
        # Draw on the CPU, so that the order is the same on every device.
        order = torch.randperm(len(self), generator=generator).to(self.inputs.device)
        for index in order.split(batch_size):
            inputs = self.inputs.index_select(0, index)  # twice as fast as indexing
            if self.augment is not None:
                inputs = self.augment(inputs, generator)
            yield inputs, self.targets[index]


@dataclass(frozen=True)
class StreamedBatches:
    """Batches that a `DataLoader` reads, moved to the device one at a time."""

    source: StreamedExamples
    classes: Sequence[Label]
    device: torch.device

    def __len__(self) -> int:
        return len(self.source)

    def batches(
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        batching: dict[str, Any] = {"batch_size": batch_size, "shuffle": True}
        if generator is None:
            parts = torch.arange(len(self)).split(even_parts(len(self), batch_size))
            batching = {"batch_sampler": [part.tolist() for part in parts]}
        batching["pin_memory"] = self.device.type == "cuda"
        # The generator also seeds the random draws of the data set, so they differ in each epoch.
        # Scoring passes no generator, and draws are then the same in every reading.
        seeded = generator or torch.Generator().manual_seed(0)
        for inputs, labels in loaded(self.source.dataset, self.source.workers, seeded, **batching):
            batch = self.source.prepared(inputs).to(self.device, non_blocking=True)
            targets = encode_labels(label_array(labels), self.classes)
            if generator is not None and self.source.augment is not None:
                batch = self.source.augment(batch, generator)
            yield batch, targets.to(self.device, non_blocking=True)


def to_batches(
    examples: Examples | StreamedExamples, classes: Sequence[Label], device: torch.device
) -> TensorBatches | StreamedBatches:
    """A batch source on a device. A label becomes its position in `classes`."""
    if isinstance(examples, StreamedExamples):
        return StreamedBatches(examples, classes, device)
    targets = encode_labels(examples.labels, classes)
    return TensorBatches(examples.inputs.to(device), targets.to(device), examples.augment)


def loaded(
    dataset: Dataset, workers: int, generator: torch.Generator, **settings: Any
) -> Iterator[tuple[Tensor, list[Any]]]:
    """Batches (inputs, labels) that a `DataLoader` reads; errors in its workers become one line.

    `generator` seeds the global generators for each batch or, in worker processes, for each epoch.
    """
    loader = DataLoader(
        dataset, num_workers=workers, generator=generator, collate_fn=_stacked, **settings
    )
    seed = int(torch.randint(2**62, (), generator=generator))
    try:
        # Without workers the data set draws from the caller's generators: restore them afterwards.
        with drawing(seed):
            batches = iter(loader)
        while True:
            seed += 1
            with drawing(seed):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
    except ImpressLearnError as error:
        if "\n" not in str(error):
            raise
        # A worker process puts its traceback before the message; keep only the last line.
        kind, line = type(error), str(error).strip().rsplit("\n", 1)[-1]
        raise kind(line.removeprefix(f"{kind.__module__}.{kind.__qualname__}: ")) from None


def _stacked(items: Sequence[tuple[Any, Any]]) -> tuple[Tensor, list[Any]]:
    """Stacks single examples to a batch; labels keep their types."""
    return torch.stack([raw(value) for value, _ in items]), [label for _, label in items]
