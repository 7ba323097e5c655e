"""Sentences as rows of numbers: a `TextEncoder` stands before a frozen network.

It is fitted once, on sentences without labels, and then serves every task: its float tensors are
inputs like any others, so learners, stores and exports know nothing of text. Keep its file beside
the store: every task of the store depends on it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_integer, encodable
from impresslearn.errors import InputError, MissingDataError
from impresslearn.files import check_place, reason_of, write_file

NGRAMS: dict[str, dict[str, Any]] = {
    "words": {"ngram_range": (1, 2)},
    "characters": {"analyzer": "char_wb", "ngram_range": (2, 4)},
}
"""Runs of words, and of characters within words, as settings of `CountVectorizer`."""

ITERATIONS = 3
"""Power iterations of the randomised decomposition."""

NORM = 8.0
"""The length of every row."""

UNREADABLE = (AttributeError, BadZipFile, EOFError, LookupError, OSError, TypeError, ValueError)
"""Exceptions that NumPy raises for files of another kind or form."""


class TextEncoder:
    """Sentences as rows of `width` numbers, by latent semantic analysis of their n-grams.

    Tf-idf weights of n-grams (one or two words, two to four characters) are projected onto the
    first singular vectors, each divided by the square root of its singular value; rows are scaled
    to length 8 (Deerwester et al., 1990).

    - `width`: numbers per sentence (768); must be below the number of sentences it is fitted to.
    - `seed`: of the randomised decomposition, 0 to 2**32 - 1 (0).

    After `fit` or `load`, `ngrams_` holds the known n-grams and `projection_` the (n-grams, width)
    float32 matrix.
    """

    ngrams_: dict[str, list[str]]
    projection_: np.ndarray

    def __init__(self, width: int = 768, seed: int = 0) -> None:
        self.width = check_integer("width", width, 1)
        self.seed = check_integer("seed", seed, 0, 2**32)

    def __repr__(self) -> str:
        return f"TextEncoder(width={self.width}, seed={self.seed})"

    def fit(self, sentences: Sequence[str]) -> TextEncoder:
        """Learns the n-grams that two sentences or more share, and their projection; returns self.

        - `sentences`: strings; labels are not needed.

        Raises InputError for anything but strings, and for too few sentences or shared n-grams.
        """
        sentences = _checked(sentences)
        ngrams = {kind: _shared_ngrams(kind, sentences) for kind in NGRAMS}
        counts = _counts(sentences, ngrams)
        if self.width >= min(counts.shape):
            raise InputError(
                f"width {self.width} needs more sentences, and more n-grams that two of them "
                f"share, got {counts.shape[0]} and {counts.shape[1]}; lower width"
            )
        self.ngrams_, self.projection_ = ngrams, _projection(counts, self.width, self.seed)
        return self

    def transform(self, sentences: Sequence[str]) -> Tensor:
        """Sentences as inputs: (n, width) float32 rows of length 8.

        - `sentences`: strings; one without any known n-gram becomes zeros.

        Raises InputError for anything but strings, and before `fit`.
        """
        self._check_fitted()
        rows = _counts(_checked(sentences), self.ngrams_) @ self.projection_
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return torch.from_numpy(rows * (NORM / np.where(lengths > 0, lengths, 1)))

    def save(self, path: str | os.PathLike) -> Path:
        """Writes the encoder to a .npz file of plain arrays, and returns the path.

        A loaded encoder gives the same numbers, because `fit` already rounds the projection to the
        half precision of the file. Raises InputError if the file cannot be written, and before
        `fit`.
        """
        self._check_fitted()
        check_place(path)
        arrays: dict[str, Any] = {
            "projection": self.projection_.astype(np.float16),
            "seed": self.seed,
        }
        for kind, ngrams in self.ngrams_.items():
            arrays[kind] = np.frombuffer("\n".join(ngrams).encode(), np.uint8)
        data = io.BytesIO()
        np.savez(data, **arrays)
        return write_file(path, data.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike) -> TextEncoder:
        """The encoder that `save` wrote. Raises MissingDataError or InputError for other files."""
        if not Path(path).is_file():
            raise MissingDataError(f"no text encoder at {path}; write one with TextEncoder.save")
        try:
            with np.load(path, allow_pickle=False) as file:
                projection = file["projection"].astype(np.float32)
                encoder = cls(projection.shape[1], int(file["seed"]))
                encoder.ngrams_ = {
                    kind: file[kind].tobytes().decode().split("\n") for kind in NGRAMS
                }
        except UNREADABLE as error:
            raise InputError(f"{path} is not a text encoder: {reason_of(error)}") from None
        encoder.projection_ = projection
        known = sum(map(len, encoder.ngrams_.values()))
        if projection.shape != (known, encoder.width) or not np.isfinite(projection).all():
            raise InputError(f"{path} is not a text encoder: its {known} n-grams lack a projection")
        return encoder

    def _check_fitted(self) -> None:
        if not hasattr(self, "projection_"):
            raise InputError(f"{self!r} is not fitted; call fit(sentences), or TextEncoder.load")


def _checked(sentences: Any) -> list[str]:
    if isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable):
        kind = type(sentences).__name__
        raise InputError(f"sentences must be a list of strings, got {kind}; put one in a list")
    checked = list(sentences)
    for place, sentence in enumerate(checked):
        if not isinstance(sentence, str) or not encodable(sentence):
            raise InputError(f"sentence {place} is no text: {sentence!r}")
    return checked


def _shared_ngrams(kind: str, sentences: Sequence[str]) -> list[str]:
    """The n-grams of at least two sentences, sorted."""
    from sklearn.feature_extraction.text import CountVectorizer

    try:
        return sorted(CountVectorizer(min_df=2, **NGRAMS[kind]).fit(sentences).vocabulary_)
    except ValueError:  # none is left
        raise InputError(
            f"no two of the {len(sentences)} sentences share {kind}; give more of them"
        ) from None


def _counts(sentences: Sequence[str], ngrams: Mapping[str, Sequence[str]]) -> Any:
    """1 + log of how often a sentence has each n-gram, 0 for none: sparse (n, n-grams) float32."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import CountVectorizer

    blocks = []
    for kind, known in ngrams.items():
        vectorizer = CountVectorizer(vocabulary=known, dtype=np.float32, **NGRAMS[kind])
        blocks.append(vectorizer.transform(sentences))
    counts = hstack(blocks, format="csr")
    counts.data = 1 + np.log(counts.data)
    return counts


def _projection(counts: Any, width: int, seed: int) -> np.ndarray:
    """idf_i v_ik / sqrt(s_k) of the tf-idf rows' singular vectors v and values s.

    (n-grams, width) float32, rounded to half precision.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    tfidf = TfidfTransformer().fit(counts)
    decomposed = TruncatedSVD(width, n_iter=ITERATIONS, random_state=seed)
    decomposed.fit(tfidf.transform(counts))
    turned = decomposed.components_.T / np.sqrt(decomposed.singular_values_)
    projection = tfidf.idf_[:, None] * turned
    # Rows are scaled in the end, so only half precision's range asks for this.
    return (projection / np.abs(projection).max()).astype(np.float16).astype(np.float32)
