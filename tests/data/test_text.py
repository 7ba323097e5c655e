"""Sentences become the same numbers ever after, near for sentences that are alike."""

import numpy as np
import pytest
import torch

from impresslearn import MissingDataError, TextEncoder
from toys import refused

THINGS = ("a card", "the rent", "a flight", "some music", "the oven", "my dog")
SENTENCES = [
    f"{start} {thing} {end}".strip()
    for thing in THINGS
    for start in ("please pay for", "tell me about", "cancel", "i have lost")
    for end in ("", "now", "today please")
]


@pytest.fixture(scope="module")
def encoder():
    return TextEncoder(width=12).fit(SENTENCES)


def test_rows_are_of_one_length_and_near_for_sentences_alike(encoder):
    rows = encoder.transform(["cancel my flight", "please cancel the flight", "lost: a dog", "Ω"])
    assert (rows.shape, rows.dtype) == ((4, 12), torch.float32)
    assert rows[:3].norm(dim=1).tolist() == pytest.approx([8.0] * 3)
    assert not rows[3].any()
    assert rows[0] @ rows[1] > 2 * (rows[0] @ rows[2])
    assert encoder.transform([]).shape == (0, 12)
    one_by_one = torch.cat([encoder.transform([each]) for each in SENTENCES])
    assert torch.equal(one_by_one, encoder.transform(SENTENCES))


def test_another_fit_and_a_file_give_the_same_numbers(encoder, tmp_path):
    rows = encoder.transform(SENTENCES)
    assert torch.equal(TextEncoder(12).fit(iter(SENTENCES)).transform(SENTENCES), rows)
    loaded = TextEncoder.load(encoder.save(tmp_path / "text.npz"))
    assert repr(loaded) == repr(encoder) == "TextEncoder(width=12, seed=0)"
    assert torch.equal(loaded.transform(SENTENCES), rows)
    with np.load(tmp_path / "text.npz", allow_pickle=False) as file:
        assert {file[name].dtype.kind for name in file.files} <= set("uif")


def test_unusable_sentences_and_widths_are_refused(encoder):
    for given, message in (
        ("cancel my flight", "a list of strings, got str; put one in a list"),
        (3, "a list of strings, got int"),
        (["cancel", 3], "sentence 1 is no text: 3"),
        (["cancel", "\ud800"], "sentence 1 is no text"),
    ):
        refused(message, encoder.transform, given)
        refused(message, TextEncoder().fit, given)
    refused("width 768 needs more sentences", TextEncoder().fit, SENTENCES)
    for few in ([], ["", ""], ["one", "two"]):
        refused("sentences share words; give more", TextEncoder(1).fit, few)
    refused("width must be an integer of at least 1", TextEncoder, 0)
    refused(r"TextEncoder\(width=768, seed=0\) is not fitted", TextEncoder().transform, SENTENCES)


def test_unusable_files_are_refused(encoder, tmp_path):
    path = tmp_path / "text.npz"
    refused("no text encoder at", TextEncoder.load, path, error=MissingDataError)
    arrays = dict(np.load(encoder.save(path)))
    for changed in (
        {"projection": arrays["projection"][1:]},
        {"projection": arrays["projection"] * np.inf},
        {"words": np.array([255], np.uint8)},
        {"seed": np.array(["no"], object)},
        {"projection": np.float16(1)},
    ):
        np.savez(path, **arrays | changed)
        refused("is not a text encoder", TextEncoder.load, path)
    for content in (b"", b"PK\x03\x04 broken", b"\x93NUMPY"):
        path.write_bytes(content)
        refused("is not a text encoder", TextEncoder.load, path)
