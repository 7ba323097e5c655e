"""CLINC150: ten tasks of text, one domain of fifteen intents each, and sentences of no intent.

Source: Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope
Prediction" (2019). The folder is the one they publish.
"""

from __future__ import annotations

import json
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from benchmarks.streams.sentences import TextEncoder
from impresslearn.data import Examples
from impresslearn.errors import InputError, MissingDataError
from impresslearn.streams import Stream, Task

SENTENCES, DOMAINS = "data_full.json", "domains.json"


def clinc150(root: str | Path, width: int = 768, seed: int = 0) -> Stream:
    """One task per domain; 100, 20 and 30 sentences per intent to train, validate and test on.

    - root: the folder of data_full.json (lists of [sentence, intent] per split) and domains.json
      (lists of intents per domain, in the order of the tasks).
    - width, seed: of the `TextEncoder`, fitted to the training sentences of all domains without
      their intents. Inputs are (n, width) float32, labels the intents' names.

    Raises MissingDataError without the files, InputError if the intents of the two files differ.
    """
    splits = _read(Path(root) / SENTENCES)
    domains = _read(Path(root) / DOMAINS)
    in_sentences = {intent for _, intent in splits["train"]}
    in_domains = {intent for intents in domains.values() for intent in intents}
    if unmatched := sorted(in_sentences ^ in_domains):
        raise InputError(
            f"{SENTENCES} and {DOMAINS} in {root} must name the same intents; only one of them "
            f"has {unmatched[0]!r}"
        )
    encoder = _fitted_encoder(tuple(sentence for sentence, _ in splits["train"]), width, seed)
    tasks = []
    for name, intents in domains.items():
        train, test = (
            partial(_examples, encoder, [pair for pair in splits[split] if pair[1] in intents])
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


def _examples(encoder: TextEncoder, pairs: list) -> Examples:
    sentences, intents = zip(*pairs, strict=True)
    return Examples(encoder.transform(sentences), np.array(intents))


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
