import errno
import json
import os
import stat
import sys
import warnings

import pytest
import torch
from export_cases import (
    RESNET_NORMS,
    Encoder,
    Tied,
    adapted_learner,
    finished,
    lenet_learner,
    resnet_learner,
)
from torch import nn

from impresslearn import create_backbone
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.export import (
    export_module,
    export_program,
    export_safetensors,
    export_task,
    writing,
)
from toys import ConvNet, blobs, pictures


@pytest.fixture(scope="module")
def learner():
    return lenet_learner()


def read_weights(path):
    """(tensors, metadata) of a safetensors file."""
    safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")
    with safetensors.safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize("norm", ["none", *RESNET_NORMS])
def test_weights_load_into_the_network_that_the_metadata_describe(norm, tmp_path):
    learner = lenet_learner() if norm == "none" else resnet_learner(norm)
    inputs = blobs(5)[0] if norm == "none" else pictures(5)[0]
    path = export_safetensors(finished(learner), tmp_path / "new.safetensors")
    tensors, metadata = read_weights(path)
    module = create_backbone(**json.loads(metadata["backbone"])).module.eval()
    state = module.state_dict()
    assert tensors.keys() == state.keys()
    state.update(tensors)
    module.load_state_dict(state)
    classes = json.loads(metadata["classes"])
    assert torch.equal(module(inputs)[:, : len(classes)], learner.logits(inputs, "new"))
    assert (metadata["task"], classes) == ("new", ["c", "d"])
    assert metadata["fingerprint"] == learner.backbone.fingerprint()
    assert metadata["library"] == "impresslearn"
    assert metadata["library_version"]


@pytest.mark.parametrize(("make", "small"), [(ConvNet, False), (Tied, True)])
def test_weights_load_into_the_users_own_module(make, small, tmp_path):
    learner = adapted_learner(make(), small=small)
    path = export_safetensors(finished(learner), tmp_path / "new.safetensors")
    tensors, metadata = read_weights(path)
    module = make().eval()
    module.load_state_dict(tensors)
    inputs = blobs(5)[0] if small else pictures(5)[0]
    assert torch.equal(module(inputs)[:, :2], learner.logits(inputs, "new"))
    assert json.loads(metadata["backbone"]) is None


def test_a_state_dict_of_more_than_tensors(tmp_path):
    class Noted(nn.Linear):
        def get_extra_state(self):
            return "a note"

        def set_extra_state(self, state):
            pass

    learner = adapted_learner(Noted(16, 3))
    with pytest.raises(InputError, match=r"Noted keeps a str as '_extra_state'"):
        export_safetensors(finished(learner), tmp_path / "new.safetensors")


def test_without_safetensors(learner, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingDependencyError, match="pip install safetensors"):
        export_safetensors(finished(learner), tmp_path / "new.safetensors")


def reload(path):
    """(module, metadata) of a .pt2 file."""
    about = {"impresslearn.json": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(path, extra_files=about)
    return program.module(), json.loads(about["impresslearn.json"])


def check_program(learner, inputs, path, example=None):
    """The program of "new" computes what the exported module does, for several batch sizes."""
    export_program(finished(learner), path, example)
    program, metadata = reload(path)
    module = export_module(finished(learner))
    for count in (1, 2, 9) if learner.backbone.norm != "batch" else (2, 9):
        torch.testing.assert_close(program(inputs[:count]), module(inputs[:count]))
    assert metadata["task"] == "new"
    assert json.loads(metadata["classes"]) == ["c", "d"]
    return program


def test_a_program_has_the_modules_logits(learner, tmp_path):
    inputs = blobs(5)[0]
    program = check_program(learner, inputs, tmp_path / "new.pt2")
    assert torch.equal(program(inputs), learner.logits(inputs, "new"))


def test_a_program_takes_inputs_of_the_examples_shape(learner, tmp_path):
    images = blobs(5)[0].reshape(-1, 1, 4, 4)
    check_program(learner, images, tmp_path / "new.pt2", example=images[:1].numpy())


@pytest.mark.parametrize("norm", RESNET_NORMS)
def test_programs_under_every_norm_policy(norm, tmp_path):
    inputs = pictures(5)[0]
    check_program(resnet_learner(norm), inputs, tmp_path / "new.pt2", example=inputs)


def test_a_program_of_a_transformer(tmp_path):
    learner = adapted_learner(nn.Sequential(nn.Unflatten(1, (2, 8)), Encoder()))
    check_program(learner, blobs(5)[0], tmp_path / "new.pt2", example=blobs(5)[0])


def test_free_sizes_need_an_example(tmp_path):
    task = finished(resnet_learner("group"))
    with pytest.raises(InputError, match=r"resnet18 takes inputs of any size \(3, \*, \*\); pass"):
        export_program(task, tmp_path / "new.pt2")
    with pytest.raises(InputError, match="example holds no input"):
        export_program(task, tmp_path / "new.pt2", torch.zeros(0, 3, 8, 8))
    with pytest.raises(InputError, match="channels come first"):
        export_program(task, tmp_path / "new.pt2", torch.zeros(2, 8, 8, 3))
    with pytest.raises(InputError, match="Linear takes inputs of any size; pass example="):
        export_program(finished(adapted_learner(nn.Linear(16, 3))), tmp_path / "new.pt2")
    assert list(tmp_path.iterdir()) == []


def test_what_torch_cannot_trace(tmp_path):
    class Fickle(nn.Linear):
        def forward(self, inputs):
            logits = super().forward(inputs)
            return logits if logits.sum() > 0 else -logits

    learner = adapted_learner(Fickle(16, 3))
    with pytest.raises(InputError, match=r"torch.export cannot trace Fickle: .*safetensors") as e:
        export_program(finished(learner), tmp_path / "new.pt2", blobs()[0])
    assert "\n" not in str(e.value)
    assert list(tmp_path.iterdir()) == []


def test_the_suffix_says_the_format(learner, tmp_path):
    task = finished(learner)
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    assert export_task(task, str(tmp_path / "a.SAFETENSORS")) == tmp_path / "a.SAFETENSORS"
    assert read_weights(tmp_path / "a.SAFETENSORS")[1]["task"] == "new"
    export_task(task, tmp_path / "b.bin", format="safetensors")
    assert read_weights(tmp_path / "b.bin")[1]["task"] == "new"
    export_task(task, tmp_path / "c.pt2")
    assert reload(tmp_path / "c.pt2")[1]["task"] == "new"
    for name in ("a", "a.pt", "onnx"):
        with pytest.raises(InputError, match=r"must end in .safetensors, .onnx, .pt2, got .*"):
            export_task(task, tmp_path / name)
    with pytest.raises(InputError, match=r"one of safetensors, onnx, pt2, got '.onnx'"):
        export_task(task, tmp_path / "a.onnx", format=".onnx")
    with pytest.raises(InputError, match="path must be a string or Path, got int"):
        export_task(task, 7)


@pytest.mark.parametrize("suffix", ["safetensors", "onnx", "pt2"])
def test_places_that_cannot_be_written(suffix, learner, tmp_path):
    needed = {"safetensors": "safetensors", "onnx": "onnxscript"}.get(suffix, "torch")
    pytest.importorskip(needed, reason=f"{needed} is not installed")
    folder = tmp_path / f"folder.{suffix}"
    folder.mkdir()
    with pytest.raises(InputError, match=r"^cannot write .*: it is a folder$"):
        export_task(finished(learner), folder)
    with pytest.raises(InputError, match=r"^cannot write .*: there is no folder .*nowhere$"):
        export_task(finished(learner), tmp_path / "nowhere" / f"a.{suffix}")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(step, error, tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        writing.replace_file(path, b"new")
    if expected is InputError:
        assert str(caught.value) == f"cannot write {path}: No space left"
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.bin", b"old")]


def test_a_file_takes_the_place_of_the_old_one(tmp_path):
    plain, path, link = tmp_path / "plain", tmp_path / "a.bin", tmp_path / "link.bin"
    plain.write_bytes(b"old")
    path.write_bytes(b"old")
    link.symlink_to(path)
    assert writing.replace_file(link, b"new") == link
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_devices_are_left_alone():
    with pytest.raises(InputError, match="cannot write /dev/full: it is not a regular file"):
        writing.replace_file("/dev/full", b"x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_names_that_no_file_can_have(tmp_path):
    for name in ("a\0b", "x" * 300):
        with pytest.raises(InputError, match=r"^cannot write ") as caught:
            writing.replace_file(tmp_path / name, b"x")
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
