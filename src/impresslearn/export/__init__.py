"""One task as a plain module, .safetensors, .onnx or .pt2, which live without this library."""

from impresslearn.export.files import FORMATS, export_program, export_safetensors, export_task
from impresslearn.export.module import TaskModel, export_module
from impresslearn.export.onnx import export_onnx

__all__ = [
    "FORMATS",
    "TaskModel",
    "export_module",
    "export_onnx",
    "export_program",
    "export_safetensors",
    "export_task",
]
