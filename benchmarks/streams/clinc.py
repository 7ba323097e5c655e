"""CLINC150: ten tasks of text, one domain of fifteen intents each, and sentences of no intent.

Sentences become rows of numbers by latent semantic analysis of their n-grams.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_union
from torch import Tensor

from benchmarks.work.packaged import minilm_tokens
from impresslearn.data import Examples
from impresslearn.errors import MissingDataError
from impresslearn.streams import Stream, Task
from impresslearn.streams.draws import seeded

SENTENCES, DOMAINS = "data_full.json", "domains.json"
INTENTS = 5  # of a customer
WIDTH, NORM = 768, 8.0  # the size and length of every row


def clinc150(root: str | Path, seed: int = 0, tokens: bool = False, customers: int = 0) -> Stream:
    """One task per domain; 100, 20 and 30 sentences per intent to train, validate and test on.

    - root: the folder of data_full.json (lists of [sentence, intent] per split) and domains.json
      (lists of intents per domain, in the order of the tasks).
    - seed: of the decomposition that makes the inputs, (n, 768) float32. Labels are intents.
    - tokens: whether inputs are the tokens of MiniLM instead.
    - customers: a number of tasks, each with five intents drawn from all domains, in their place.

    Raises MissingDataError without the files.
    Source: Larson et al. 2019, whose folder it is.
    """
    splits = _read(Path(root) / SENTENCES)
    domains = _read(Path(root) / DOMAINS)
    encode: Any = minilm_tokens if tokens else sentence_encoder(root, seed)
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

    - split: "train", "val" or "test", or "oos_train", "oos_val" or "oos_test" for sentences of
      no intent.
    """
    return [sentence for sentence, _ in _read(Path(root) / SENTENCES)[split]]


def _examples(encode: Any, pairs: list) -> Examples:
    sentences, intents = zip(*pairs, strict=True)
    return Examples(encode(sentences), np.array(intents))


def _read(path: Path) -> dict:
    if not path.is_file():
        raise MissingDataError(
            f"no {path}: expected the folder data/ of github.com/clinc/oos-eval with "
            f"{SENTENCES} and {DOMAINS}; nothing is downloaded"
        )
    return json.loads(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)  # every job of a run makes the stream again
def sentence_encoder(root: str | Path, seed: int = 0) -> Callable[[Iterable[str]], Tensor]:
    """What makes (n, 768) float32 of sentences: rows of length 8, or zeros without known n-grams.

    Tf-idf weights of n-grams (one or two words, two to four characters) that two training
    sentences or more share are projected onto the first singular vectors, each divided by the
    square root of its singular value (Deerwester et al., 1990). Intents are not looked at.
    """
    # 1 + log of how often a sentence has each n-gram, 0 for none.
    damped = partial(TfidfVectorizer, min_df=2, sublinear_tf=True, use_idf=False, norm=None)
    words = damped(ngram_range=(1, 2), dtype=np.float32)
    characters = damped(analyzer="char_wb", ngram_range=(2, 4), dtype=np.float32)
    sentences = clinc150_sentences(root)
    ngrams = make_union(words, characters).fit(sentences)
    # `fit_transform` would keep other orders inside of rows, whose sums round otherwise.
    counts = ngrams.transform(sentences)
    tfidf = TfidfTransformer().fit(counts)
    decomposed = TruncatedSVD(WIDTH, n_iter=3, random_state=seed).fit(tfidf.transform(counts))
    turned = decomposed.components_.T / np.sqrt(decomposed.singular_values_)
    projection = tfidf.idf_[:, None] * turned
    # Half precision, in which the measured encoders were stored.
    rounded = (projection / np.abs(projection).max()).astype(np.float16).astype(np.float32)

    def encode(sentences: Iterable[str]) -> Tensor:
        rows = ngrams.transform(sentences) @ rounded
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return torch.from_numpy(rows * (NORM / np.where(lengths > 0, lengths, 1)))

    return encode
