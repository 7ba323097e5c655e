"""Sentences as rows of numbers, by latent semantic analysis of their n-grams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from torch import Tensor

NGRAMS: dict[str, dict[str, Any]] = {
    "words": {"ngram_range": (1, 2)},
    "characters": {"analyzer": "char_wb", "ngram_range": (2, 4)},
}
"""Runs of words, and of characters within words, as settings of `CountVectorizer`."""
NORM = 8.0
"""The length of every row."""


class TextEncoder:
    """Sentences as rows of `width` numbers.

    Tf-idf weights of n-grams (one or two words, two to four characters) are projected onto the
    first singular vectors, each divided by the square root of its singular value; rows are scaled
    to length 8 (Deerwester et al., 1990).

    - width: numbers per sentence (768).
    - seed: of the randomised decomposition (0).
    """

    def __init__(self, width: int = 768, seed: int = 0) -> None:
        self.width = width
        self.seed = seed
        self._ngrams: dict[str, list[str]] = {}

    def fit(self, sentences: Iterable[str]) -> TextEncoder:
        """Learns the n-grams that two sentences or more share, and their projection."""
        sentences = list(sentences)
        for kind, settings in NGRAMS.items():
            vocabulary = CountVectorizer(min_df=2, **settings).fit(sentences).vocabulary_
            self._ngrams[kind] = sorted(vocabulary)
        counts = _counts(sentences, self._ngrams)
        tfidf = TfidfTransformer().fit(counts)
        decomposed = TruncatedSVD(self.width, n_iter=3, random_state=self.seed)
        decomposed.fit(tfidf.transform(counts))
        turned = decomposed.components_.T / np.sqrt(decomposed.singular_values_)
        projection = tfidf.idf_[:, None] * turned
        # Half precision, in which the measured encoders were stored.
        rounded = (projection / np.abs(projection).max()).astype(np.float16)
        self._projection = rounded.astype(np.float32)
        return self

    def transform(self, sentences: Iterable[str]) -> Tensor:
        """(n, width) float32 rows of length 8, zeros for a sentence without any known n-gram."""
        rows = _counts(list(sentences), self._ngrams) @ self._projection
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return torch.from_numpy(rows * (NORM / np.where(lengths > 0, lengths, 1)))


def _counts(sentences: Sequence[str], ngrams: Mapping[str, Sequence[str]]) -> Any:
    """1 + log of how often a sentence has each n-gram, 0 for none: sparse (n, n-grams) float32."""
    blocks = []
    for kind, known in ngrams.items():
        vectorizer = CountVectorizer(vocabulary=known, dtype=np.float32, **NGRAMS[kind])
        blocks.append(vectorizer.transform(sentences))
    counts = hstack(blocks, format="csr")
    counts.data = 1 + np.log(counts.data)
    return counts
