"""Labelled examples: turns a user's data into something that training draws batches from.

`as_examples` turns tensors, arrays, data sets and image folders into `Examples` (everything in
memory; the fast path) or `StreamedExamples` (read anew each epoch). Streams produce them, learners
consume them, `to_batches` puts them on a device. Labels stay as the user gave them (integers or
strings); `encode_labels` maps them to 0..K-1.
"""

from impresslearn.data.batches import (
    BatchSource,
    StreamedBatches,
    TensorBatches,
    even_parts,
    to_batches,
)
from impresslearn.data.conversion import as_examples, users_code
from impresslearn.data.examples import (
    MEMORY_LIMIT,
    Augmentation,
    Examples,
    Inputs,
    StreamedExamples,
    as_inputs,
    as_network_inputs,
    data_fingerprint,
    one_tensor,
)
from impresslearn.data.features import Features, inputs_behind
from impresslearn.data.labels import (
    Label,
    classes_of,
    encode_labels,
    grown_classes,
    label_array,
    task_classes,
)
from impresslearn.data.preprocessing import Prepared, Preprocessing

__all__ = [
    "MEMORY_LIMIT",
    "Augmentation",
    "BatchSource",
    "Examples",
    "Features",
    "Inputs",
    "Label",
    "Prepared",
    "Preprocessing",
    "StreamedBatches",
    "StreamedExamples",
    "TensorBatches",
    "as_examples",
    "as_inputs",
    "as_network_inputs",
    "classes_of",
    "data_fingerprint",
    "encode_labels",
    "even_parts",
    "grown_classes",
    "inputs_behind",
    "label_array",
    "one_tensor",
    "task_classes",
    "to_batches",
    "users_code",
]
