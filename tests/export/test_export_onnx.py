import json
import math
import sys

import pytest
import torch
from export_cases import (
    Encoder,
    Tied,
    adapted_learner,
    finished,
    lenet_learner,
    resnet_learner,
)
from torch import nn

from impresslearn.errors import ImpressLearnError, InputError, MissingDependencyError
from impresslearn.export import export_module, export_onnx, export_task
from impresslearn.export import onnx as exporter
from toys import ConvNet, blobs, lenet, pictures

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.fixture(scope="module")
def learner():
    return lenet_learner()


def model(learner):
    """What the exporter translates."""
    task = finished(learner)
    return task, export_module(task), torch.zeros(2, 16)


def check_model(learner, inputs, path, dtype=torch.float32, error=1e-5, example=None):
    """onnxruntime computes the module's logits for several batch sizes; returns the session."""
    export_task(finished(learner), path, example=example)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    module = export_module(finished(learner))
    for count in (1, 2, 17, 24) if learner.backbone.norm != "batch" else (8, 17, 24):
        values = inputs[:count].to(dtype)
        (logits,) = session.run(["logits"], {"input": values.numpy()})
        expected = module(values)
        assert logits.shape == (count, 2)
        difference = (torch.from_numpy(logits) - expected).double().norm()
        assert difference <= error * expected.double().norm()
    return session


def test_a_lenet_quietly(learner, tmp_path, capfd, recwarn):
    session = check_model(learner, blobs(5)[0], tmp_path / "new.onnx")
    assert [each.shape for each in session.get_inputs()] == [["batch", 16]]
    assert [each.shape for each in session.get_outputs()] == [["batch", 2]]
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["task"] == "new"
    assert json.loads(metadata["classes"]) == ["c", "d"]
    assert metadata["fingerprint"] == learner.backbone.fingerprint()
    onnx.checker.check_model(str(tmp_path / "new.onnx"))
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared"])
def test_batch_norm_under_every_policy(norm, tmp_path):
    learner = adapted_learner(ConvNet(), small=False, norm=norm, input_shape=(3, 8, 8))
    check_model(learner, pictures(5)[0], tmp_path / "new.onnx")


def test_a_residual_network(tmp_path):
    inputs = pictures(5)[0]
    check_model(resnet_learner("group"), inputs, tmp_path / "new.onnx", example=inputs[:1])


@pytest.mark.parametrize("make", [Tied, lambda: nn.Sequential(nn.Unflatten(1, (2, 8)), Encoder())])
def test_adapted_modules(make, tmp_path):
    check_model(adapted_learner(make()), blobs(5)[0], tmp_path / "new.onnx", example=blobs()[0])


@pytest.mark.parametrize(("dtype", "error"), [(torch.float16, 1e-2), (torch.float64, 1e-12)])
def test_other_number_formats(dtype, error, tmp_path):
    learner = adapted_learner(lenet(3).module.to(dtype), input_shape=(16,))
    check_model(learner, blobs(5)[0], tmp_path / "new.onnx", dtype, error)


def test_what_onnxruntime_cannot_run(tmp_path):
    learner = adapted_learner(lenet(3).module.bfloat16(), input_shape=(16,))
    path = tmp_path / "new.onnx"
    with pytest.raises(ImpressLearnError, match=r"cannot run .* in torch.bfloat16: .*verify=False"):
        export_onnx(finished(learner), path)
    assert not path.exists()
    export_onnx(finished(learner), path, verify=False)
    onnx.checker.check_model(str(path))


@pytest.mark.parametrize(("logit", "error"), [(0, 0), (1e-9, math.inf), (math.nan, math.nan)])
def test_logits_that_are_all_zero_have_an_error_too(logit, error):
    found = exporter._relative_error(torch.tensor([logit, 0]), torch.zeros(2))
    assert found == pytest.approx(error, nan_ok=True)


def test_a_wrong_model_is_not_written(learner, tmp_path, monkeypatch):
    path = tmp_path / "new.onnx"
    run, data = exporter._run, exporter._translated(*model(learner))
    monkeypatch.setattr(exporter, "_translated", lambda *_: data)
    wrong = {
        "relative error of 3.0e-04 .*allowed 1.0e-05": lambda logits: logits * 1.0003,
        "relative error of nan": lambda logits: logits * float("nan"),
        "relative error of inf": lambda logits: logits[:, :1],
    }
    for message, change in wrong.items():
        monkeypatch.setattr(exporter, "_run", lambda *args, change=change: change(run(*args)))
        with pytest.raises(ImpressLearnError, match=message):
            export_onnx(finished(learner), path)
        assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(exporter, "_run", lambda *args: run(*args) * 1.0003)
    export_onnx(finished(learner), path, tolerance=1e-3)
    assert path.exists()


def test_rounding_that_the_network_magnifies_passes(learner, tmp_path, monkeypatch):
    run, data = exporter._run, exporter._translated(*model(learner))
    monkeypatch.setattr(exporter, "_translated", lambda *_: data)
    monkeypatch.setattr(exporter, "_run", lambda *args: run(*args) * 1.0003)
    monkeypatch.setattr(exporter, "_rounding", lambda *_: 1e-4)
    path = export_onnx(finished(learner), tmp_path / "new.onnx")
    with pytest.raises(ImpressLearnError, match=r"allowed 1.0e-05"):
        export_onnx(finished(learner), path, tolerance=1e-5)


def test_rounding_is_measured_against_float64(learner):
    module = export_module(finished(learner))
    inputs = blobs(5)[0]
    assert 0 < exporter._rounding(module, inputs, module(inputs).double()) < 1e-6
    assert exporter._rounding(Half(), inputs, inputs) == 0


class Half(nn.Linear):
    """Its code names the dtype that it works in."""

    def __init__(self):
        super().__init__(16, 3)

    def forward(self, inputs):
        return super().forward(inputs.float())


def test_free_sizes_need_an_example(tmp_path):
    with pytest.raises(InputError, match=r"any size \(3, \*, \*\); pass example="):
        export_onnx(finished(resnet_learner("group")), tmp_path / "new.onnx")


def test_what_cannot_be_translated(learner, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("\nno such operator\nand much more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(InputError, match=r"translated to ONNX: no such operator; a .pt2"):
        export_onnx(finished(learner), tmp_path / "new.onnx")


@pytest.mark.parametrize("name", ["onnx", "onnxscript"])
def test_without_the_packages(name, learner, tmp_path, monkeypatch):
    monkeypatch.setattr(exporter, "find_spec", lambda each: None if each == name else object())
    with pytest.raises(MissingDependencyError, match=rf"needs {name}: pip install 'impresslearn"):
        export_onnx(finished(learner), tmp_path / "new.onnx")


def test_without_onnxruntime_nothing_is_compared(learner, tmp_path, monkeypatch):
    monkeypatch.setattr(
        exporter, "find_spec", lambda each: None if each == "onnxruntime" else object()
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = export_onnx(finished(learner), tmp_path / "new.onnx")
    assert path.exists()
