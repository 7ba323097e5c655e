"""CLINC150: ten tasks of text, one domain of fifteen intents each, and sentences of no intent.

Sentences become rows of numbers by latent semantic analysis of their n-grams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from torch import Tensor

from benchmarks.work.packaged import minilm_tokens
from impresslearn.data import Examples
from impresslearn.errors import MissingDataError
from impresslearn.streams import Stream, Task
from impresslearn.streams.draws import seeded

SENTENCES, DOMAINS = "data_full.json", "domains.json"
# Runs of words, and of characters within words, as settings of `CountVectorizer`.
NGRAMS: dict[str, dict[str, Any]] = {
    "words": {"ngram_range": (1, 2)},
    "characters": {"analyzer": "char_wb", "ngram_range": (2, 4)},
}
INTENTS = 5  # of a customer
NORM = 8.0  # the length of every row


def clinc150(
    root: str | Path, width: int = 768, seed: int = 0, tokens: bool = False, customers: int = 0
) -> Stream:
    """One task per domain; 100, 20 and 30 sentences per intent to train, validate and test on.

    - root: the folder of data_full.json (lists of [sentence, intent] per split) and domains.json
      (lists of intents per domain, in the order of the tasks).
    - width, seed: of the `TextEncoder`, fitted to the training sentences of all domains without
      their intents. Inputs are (n, width) float32, labels the intents' names.
    - tokens: whether inputs are the tokens of MiniLM instead.
    - customers: a number of tasks, each with five intents drawn from all domains, in their place.

    Raises MissingDataError without the files.
    Source: Larson et al. 2019, whose folder it is.
    """
    splits = _read(Path(root) / SENTENCES)
    domains = _read(Path(root) / DOMAINS)
    encode: Any = minilm_tokens
    if not tokens:
        sentences = tuple(sentence for sentence, _ in splits["train"])
        encode = _fitted_encoder(sentences, width, seed).transform
    if customers:
        known, domains = sorted(set(chain.from_iterable(domains.values()))), {}
        for number in range(customers):
            draw = seeded(seed, "customer", number).permutation(len(known))
            domains[f"customer-{number}"] = [known[place] for place in draw[:INTENTS]]
    tasks = []
    for name, intents in domains.items():
        train, test = (
            partial(_examples, encode, [pair for pair in splits[split] if pair[1] in intents])
            for split in ("train", "test")
        )
        tasks.append(Task(name, tuple(sorted(intents)), train, test))
    return Stream("clinc150", tuple(tasks))


def clinc150_sentences(root: str | Path, split: str = "train") -> list[str]:
    """The sentences of one split, of all domains, without their intents.

    - root: as in `clinc150`.
    - split: "train", "val" or "test", or "oos_train", "oos_val" or "oos_test" for sentences of
      no intent.
    """
    return [sentence for sentence, _ in _read(Path(root) / SENTENCES)[split]]


def _examples(encode: Any, pairs: list) -> Examples:
    sentences, intents = zip(*pairs, strict=True)
    return Examples(encode(sentences), np.array(intents))


@lru_cache(maxsize=1)  # every job of a run makes the stream again
def _fitted_encoder(sentences: tuple[str, ...], width: int, seed: int) -> TextEncoder:
    return TextEncoder(width, seed).fit(sentences)


def _read(path: Path) -> dict:
    if not path.is_file():
        raise MissingDataError(
            f"no {path}: expected the folder data/ of github.com/clinc/oos-eval with "
            f"{SENTENCES} and {DOMAINS}; nothing is downloaded"
        )
    return json.loads(path.read_text(encoding="utf-8"))


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
