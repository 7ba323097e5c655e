"""`impresslearn env`: what a bug report needs to know about this machine."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from impresslearn.cli.arguments import AsJson
from impresslearn.cli.output import print_facts, print_json

PACKAGES = (
    *("impresslearn", "torch", "numpy", "numba", "llvmlite", "scikit-learn"),
    *("torchvision", "altair", "typer", "rich"),
)


def env(as_json: AsJson = False) -> None:
    """Print versions, processor, threads and CUDA devices."""
    facts = environment()
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, list):
            facts[name] = ", ".join(value) or "none"
    print_facts((name, "not available" if v is None else v) for name, v in facts.items())


def environment() -> dict[str, Any]:
    """Package versions (None where one is not installed) and the hardware as torch sees it."""
    facts: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = None
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable is not None else os.cpu_count()
    return facts | {"cpu": _cpu_name(), "cores": cores} | _torch_facts()


def _cpu_name() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine() or None


def _torch_facts() -> dict[str, Any]:
    """Threads and CUDA; all unknown where torch is missing or its libraries do not load."""
    facts: dict[str, Any] = {"threads": None, "cuda": None, "cuda_devices": []}
    try:
        import torch

        facts["threads"] = torch.get_num_threads()
        facts["cuda"] = torch.version.cuda
        facts["cuda_devices"] = [
            torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())
        ]
    except Exception as error:  # a broken installation is what this command is there to show
        facts["torch_error"] = str(error).partition("\n")[0]
    return facts
