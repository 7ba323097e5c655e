"""One task as things that live without this library: a module, weights, ONNX, a torch program."""

from impresslearn.export.formats import FORMATS, export_task
from impresslearn.export.modules import export_module
from impresslearn.export.onnx import export_onnx
from impresslearn.export.programs import export_program
from impresslearn.export.task import FinishedTask
from impresslearn.export.weights import export_safetensors

__all__ = [
    "FORMATS",
    "FinishedTask",
    "export_module",
    "export_onnx",
    "export_program",
    "export_safetensors",
    "export_task",
]
