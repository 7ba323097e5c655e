"""CLINC150: ten tasks of text, a domain of fifteen intents each, and sentences of no intent.

The data set of Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope
Prediction" (2019), in the folder that it is published as.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from impresslearn.checks import check_choice, check_name, encodable
from impresslearn.data import Examples, TextEncoder
from impresslearn.errors import InputError, MissingDataError
from impresslearn.streams.stream import Stream, Task

SENTENCES, DOMAINS = "data_full.json", "domains.json"
SPLITS = ("train", "val", "test", "oos_train", "oos_val", "oos_test")

Pairs = Sequence[tuple[str, str]]
"""Sentences with their intents."""


def clinc150(
    root: str | Path, encoder: TextEncoder | None = None, width: int = 768, seed: int = 0
) -> Stream:
    """A task of fifteen intents for each of ten domains, "banking" and so on.

    root: the folder of data_full.json (lists of [sentence, intent] by split) and domains.json
    (lists of intents by domain, whose order is the tasks'); encoder: turns sentences into inputs,
    by default a `TextEncoder(width, seed)` fitted to the training sentences of all domains, without
    their intents. Inputs: (n, width) float32; labels: the intents' names; 100 sentences an intent
    to train on, 20 for validation, 30 to test on. `clinc150_sentences` gives those out of scope.
    Raises MissingDataError where a file is not there, InputError where it is of another form.
    """
    splits, domains = _read_splits(Path(root)), _read_domains(Path(root))
    known = {intent for _, intent in splits["train"]}
    listed = {intent for intents in domains.values() for intent in intents}
    if odd := sorted(known ^ listed):
        file, other = (SENTENCES, DOMAINS) if odd[0] in known else (DOMAINS, SENTENCES)
        raise InputError(f"intent {odd[0]!r} of {Path(root) / file} is not in {other}")
    if encoder is None:
        encoder = _fitted_encoder(tuple(text for text, _ in splits["train"]), width, seed)
    elif not isinstance(encoder, TextEncoder):
        raise InputError(f"encoder must be a TextEncoder, got {type(encoder).__name__}")
    tasks = (_domain_task(name, intents, splits, encoder) for name, intents in domains.items())
    return Stream("clinc150", tuple(tasks))


def clinc150_sentences(root: str | Path, split: str = "train") -> list[str]:
    """The sentences of a split, of all domains, without their intents.

    root: as of `clinc150`; split: "train", "val" or "test", or those that belong to no intent,
    "oos_train", "oos_val" or "oos_test". `encoder.transform` makes inputs of them. Raises as
    `clinc150` does, and InputError for another split.
    """
    splits = _read_splits(Path(root))
    check_choice("split", split, splits)
    return [text for text, _ in splits[split]]


def _domain_task(
    name: str, intents: Sequence[str], splits: dict[str, Pairs], encoder: TextEncoder
) -> Task:
    def loader(split: str) -> partial[Examples]:
        chosen = [pair for pair in splits[split] if pair[1] in intents]
        if not chosen:
            raise InputError(f"{SENTENCES} has no {split} sentences of the domain {name!r}")
        return partial(_examples, encoder, *zip(*chosen, strict=True))

    train, test, validation = map(loader, ("train", "test", "val"))
    return Task(name, tuple(sorted(intents)), train, test, validation)


def _examples(encoder: TextEncoder, sentences: Sequence[str], intents: Sequence[str]) -> Examples:
    return Examples(encoder.transform(sentences), np.array(intents))


@lru_cache(maxsize=1)  # a run makes its stream once a job
def _fitted_encoder(sentences: tuple[str, ...], width: int, seed: int) -> TextEncoder:
    return TextEncoder(width, seed).fit(sentences)


def _read_splits(root: Path) -> dict[str, Pairs]:
    read = _read(root / SENTENCES)
    for split in SPLITS:
        if not isinstance(read, dict) or not _are_pairs(read.get(split)):
            raise InputError(
                f"{root / SENTENCES} must map {', '.join(SPLITS)} to lists of [sentence, intent], "
                f"which its {split} is not"
            )
    return {split: [(text, intent) for text, intent in read[split]] for split in SPLITS}


def _read_domains(root: Path) -> dict[str, list[str]]:
    read = _read(root / DOMAINS)
    if not isinstance(read, dict) or not read or not all(map(_are_texts, read.values())):
        raise InputError(f"{root / DOMAINS} must map domains to lists of intents")
    return {check_name(name, "a domain"): intents for name, intents in read.items()}


def _read(path: Path) -> Any:
    if not path.is_file():
        raise MissingDataError(
            f"no {path}: expected the folder of CLINC150 with {SENTENCES} and {DOMAINS} "
            "(github.com/clinc/oos-eval, data/); nothing is downloaded"
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{path} is no JSON file: {error}") from None


def _are_pairs(values: Any) -> bool:
    return isinstance(values, list) and all(_are_texts(v) and len(v) == 2 for v in values)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(v, str) and encodable(v) for v in values)
