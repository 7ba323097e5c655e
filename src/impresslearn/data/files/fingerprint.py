"""A digest of a data set, by which a store can tell whether a task was learned from it."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import torch

from impresslearn.data import Examples, StreamedExamples, label_array


def data_fingerprint(examples: Examples | StreamedExamples) -> str:
    """The SHA-256 of a data set, as 64 hexadecimal digits.

    It covers type, shape and bytes of inputs and labels, in their order; an augmentation is left
    out. Of `StreamedExamples` it covers the labels and their number only, as to read all inputs
    would take an epoch. A data set in memory never has the digest of a streamed one.
    """
    labels = label_array(examples.labels)
    digest = hashlib.sha256()
    kind = {"kind": type(examples).__name__, "labels": labels.dtype.kind, "count": len(labels)}
    if isinstance(examples, Examples):
        inputs = examples.inputs.detach().cpu().contiguous()
        kind |= {"dtype": str(inputs.dtype), "shape": list(inputs.shape)}
        digest.update(json.dumps(kind, sort_keys=True).encode())
        digest.update(inputs.reshape(-1).view(torch.uint8).numpy().data)
    else:
        digest.update(json.dumps(kind, sort_keys=True).encode())
    digest.update(_label_bytes(labels))
    return digest.hexdigest()


def _label_bytes(labels: np.ndarray) -> bytes:
    """The same bytes for equal labels, whatever the width of their array's type."""
    if labels.dtype.kind == "U":
        return json.dumps(labels.tolist()).encode()
    return labels.astype("<i8").tobytes()
