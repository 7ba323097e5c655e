"""One task as a module, or as a .safetensors, .onnx or .pt2 file for other programs."""

from impresslearn.export.formats import FORMATS, export_task
from impresslearn.export.module import ExportedTask, TaskModel, export_module

__all__ = ["FORMATS", "ExportedTask", "TaskModel", "export_module", "export_task"]
