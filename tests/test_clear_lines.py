"""Calls that raised from deep inside, or said nothing, get one clear line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import impresslearn as il
from impresslearn.data.images import class_images, naming
from impresslearn.errors import InputError
from impresslearn.masks import MaskBank
from toys import lenet, refused


def test_class_methods_name_missing_arguments():
    refused("needs 'backbone' and 'name'", il.ImpressLearner.from_preset)
    refused("has no argument 'nam'; did you mean 'name'", il.ImpressLearner.from_preset, nam="x")


def test_devices_that_do_not_exist():
    bank = il.ImpressLearner(lenet()).bank_
    refused("device gpu cannot be used", bank.to, "gpu")
    refused("device 5.5 cannot be used", MaskBank, lenet().layers, 5.5)


def test_a_cache_that_is_no_folder():
    stream = il.streams.rotated_digits(tasks=2)
    refused("cache must be the path of a folder, got 3", il.compare, {"a": lenet}, stream, cache=3)


def test_settings_of_a_server():
    serve = pytest.importorskip("impresslearn.serve")
    refused(
        "settings must be of type ServeSettings", serve.create_app, il.ImpressLearner(lenet()), 5
    )


def test_pickled_objects_are_not_read(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez(path, inputs=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=r"a\.npz holds Python objects") as caught, naming(path):
        np.load(path)["inputs"]
    assert "\n" not in str(caught.value)


def test_folders_below_classes_are_named(tmp_path: Path):
    for name in "xy":
        (tmp_path / name / "deep").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name / "1.png")
    with pytest.warns(UserWarning, match=r"not searched: 1 \(deep\)"):
        assert set(class_images(tmp_path)) == {"x", "y"}
