"""Exports one task as a PyTorch module, or as an .onnx file for other programs."""

from impresslearn.export.formats import export_task as export_task
from impresslearn.export.module import ExportedTask as ExportedTask
from impresslearn.export.module import TaskModel as TaskModel
