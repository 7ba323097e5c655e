"""ONNX files: onnxruntime computes the module's logits, and a wrong model is not written."""

import json

import pytest
import torch
from export_cases import learned

from impresslearn.errors import ImpressLearnError, NotLearnedWarning
from impresslearn.export import ExportedTask, export_task
from toys import refused

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.fixture(scope="module")
def learner():
    return learned("lenet")[0]


def check_model(kind, path, error=1e-5, example=False):
    """onnxruntime computes the module's logits for several batch sizes; learner and session."""
    learner, inputs = learned(kind)
    export_task(learner.task_model("new"), path, example=inputs[:1] if example else None)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    module = ExportedTask(learner.task_model("new"))
    for count in (1, 2, 17, 24) if learner.backbone.norm != "batch" else (8, 17, 24):
        values = inputs[:count]
        (logits,) = session.run(["logits"], {"input": values.numpy()})
        expected = module(values)
        assert logits.shape == (count, 2)
        difference = (torch.from_numpy(logits) - expected).double().norm()
        assert difference <= error * expected.double().norm()
    return learner, session


def test_a_lenet_quietly(tmp_path, capfd, recwarn):
    learner, session = check_model("lenet", tmp_path / "new.onnx")
    assert [each.shape for each in session.get_inputs()] == [["batch", 16]]
    assert [each.shape for each in session.get_outputs()] == [["batch", 2]]
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["task"] == "new"
    assert json.loads(metadata["classes"]) == ["c", "d"]
    assert metadata["fingerprint"] == learner.backbone.fingerprint()
    onnx.checker.check_model(str(tmp_path / "new.onnx"))
    assert capfd.readouterr() == ("", "")
    told = [each for each in recwarn.list if each.category is not NotLearnedWarning]
    assert not told  # that of the learner, of a few steps, apart


@pytest.mark.parametrize(
    ("kind", "error", "example"),
    [
        ("convnet batch", 1e-5, False),
        ("convnet per_task", 1e-5, False),
        pytest.param("resnet group", 1e-5, True, marks=pytest.mark.nightly),
        pytest.param("transformer", 1e-5, True, marks=pytest.mark.nightly),
        ("float16", 1e-2, False),
        ("float64", 1e-12, False),
    ],
)
def test_other_networks(kind, error, example, tmp_path):
    check_model(kind, tmp_path / "new.onnx", error, example)


def test_what_onnxruntime_cannot_run(tmp_path):
    task, path = learned("bfloat16")[0].task_model("new"), tmp_path / "new.onnx"
    with pytest.raises(ImpressLearnError, match=r"cannot run .* in torch.bfloat16: .*verify=False"):
        export_task(task, path)
    assert not path.exists()
    export_task(task, path, verify=False)
    onnx.checker.check_model(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda logits: logits * 1.003, "relative error of 3.0e-03 .*allowed 1.0e-03"),
        (lambda logits: logits * float("nan"), "relative error of nan"),
        (lambda logits: logits[:, :1], "relative error of inf"),
    ],
)
def test_a_wrong_model_is_not_written(learner, tmp_path, monkeypatch, change, message):
    run, path = torch.onnx.ONNXProgram.__call__, tmp_path / "new.onnx"
    monkeypatch.setattr(
        torch.onnx.ONNXProgram, "__call__", lambda *args: [change(each) for each in run(*args)]
    )
    refused(message, export_task, learner.task_model("new"), path, error=ImpressLearnError)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_translated(learner, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("\nno such operator\nand much more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    line, task = "translated to ONNX: no such operator; learner", learner.task_model("new")
    refused(line, export_task, task, tmp_path / "new.onnx")
