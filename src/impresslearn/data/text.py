"""Turns sentences into token ids by a Hugging Face tokenizer, which is kept as its JSON text."""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from impresslearn.checks import check_integer, encodable, imported, shown
from impresslearn.data.examples import Inputs, as_table
from impresslearn.errors import InputError
from impresslearn.files import reason_of


class TokenizerText(str):
    """A tokenizer's JSON text; its repr shows only a digest."""

    def __repr__(self) -> str:
        return f"{len(self):,} characters, SHA-256 {hashlib.sha256(self.encode()).hexdigest()}"


def shown_settings(settings: Any) -> Any:
    """The settings of a preprocessing, with a digest in place of the tokenizer's text."""
    text = (settings or {}).get("tokenizer")
    return settings | {"tokenizer": repr(TokenizerText(text))} if text else settings


def checked_tokenizer(given: Any, max_length: int | None) -> TokenizerText:
    """A tokenizer's JSON text, from the path of its file, a tokenizer object or the text itself."""
    text = getattr(given, "backend_tokenizer", given)  # transformers' tokenizers
    text = text.to_str() if hasattr(text, "to_str") else text
    try:
        if not str(text).lstrip().startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError, TypeError) as error:
        line = f"cannot read the tokenizer {shown(given)}: {reason_of(error)}"
        raise InputError(line) from None
    _tokenizer(text, max_length)
    return TokenizerText(text)


@lru_cache(maxsize=8)  # making a tokenizer takes a tenth of a second
def _tokenizer(text: str, max_length: int | None) -> Any:
    library = imported("tokenizers", "text needs tokenizers", "text")
    try:
        made = library.Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises plain exceptions
        line = f"the tokenizer is damaged, or no tokenizer.json: {reason_of(error)}"
        raise InputError(line) from None
    most = (made.truncation or {}).get("max_length", 512)  # 512 as in `Preprocessing`
    least = made.num_special_tokens_to_add(False) + 1
    most = check_integer("max_length", most if max_length is None else max_length, least)
    made.enable_truncation(most)
    made.enable_padding(pad_id=(made.padding or {}).get("pad_id", 0))
    return made


def tokens_of(values: Any, text: str, max_length: int | None) -> Any:
    """Sentences as `Inputs(input_ids=…, attention_mask=…)`; returns tokens unchanged."""
    if isinstance(values, (Inputs, Mapping)):
        return values
    values = as_table(values)
    columns = list(getattr(values, "columns", ()))
    if len(columns) > 1:
        raise InputError(f"text must be one column, got {', '.join(map(str, columns))[:80]}")
    values = values[columns[0]] if columns else values
    sentences = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(sentences, str) or not hasattr(sentences, "__len__") or not len(sentences):
        raise InputError(f"inputs must be a list of sentences, got {shown(values)}")
    for row, sentence in enumerate(sentences, 1):
        if not isinstance(sentence, str) or not encodable(sentence):
            raise InputError(f"inputs must be sentences, but row {row} is {shown(sentence)}")
    try:
        encoded = _tokenizer(text, max_length).encode_batch(list(sentences))
    except Exception as error:  # for example for an unknown word
        raise InputError(f"the tokenizer cannot read the text: {reason_of(error)}") from None
    mask = torch.tensor([each.attention_mask for each in encoded])
    if len(empty := (~mask.any(dim=1)).nonzero()):
        raise InputError(f"row {int(empty[0]) + 1} holds no word that the tokenizer knows")
    return Inputs(input_ids=torch.tensor([each.ids for each in encoded]), attention_mask=mask)
