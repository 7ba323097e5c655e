"""The application: its options, the list of its commands, and `impresslearn env`."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from impresslearn.cli.advise import advise
from impresslearn.cli.arguments import AsJson
from impresslearn.cli.experiments import bench, demo, report, reproduce, run
from impresslearn.cli.help import PlainCommand
from impresslearn.cli.learn import learn
from impresslearn.cli.output import print_facts, print_json, say
from impresslearn.cli.predict import infer, predict
from impresslearn.cli.serve import serve
from impresslearn.cli.store import store

PACKAGES = (
    *("impresslearn", "torch", "numpy", "numba", "llvmlite", "scikit-learn"),
    *("torchvision", "altair", "typer", "rich"),
)

# Plain help and errors: importing rich would cost half of the time that `--help` may take.
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from impresslearn import __version__

        say(f"impresslearn {__version__}")
        raise typer.Exit


@app.callback()
def impresslearn(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Continual learning in which every new task costs a handful of numbers."""


def env(as_json: AsJson = False) -> None:
    """Print versions, processor, threads and CUDA devices.

    Example: impresslearn env --json
    """
    from impresslearn.experiments.provenance import processor_name

    facts: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = None
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable is not None else os.cpu_count()
    facts |= {"cpu": processor_name(), "cores": cores} | _torch_facts()
    if as_json:
        print_json(facts)
        return
    facts["cuda_devices"] = ", ".join(facts["cuda_devices"]) or "none"
    print_facts((name, "not available" if v is None else v) for name, v in facts.items())


def _torch_facts() -> dict[str, Any]:
    """Threads and CUDA; all unknown where torch is missing or its libraries do not load."""
    facts: dict[str, Any] = {"threads": None, "cuda": None, "cuda_devices": []}
    try:
        import torch

        facts["threads"] = torch.get_num_threads()
        facts["cuda"] = torch.version.cuda
        count = torch.cuda.device_count()
        facts["cuda_devices"] = [torch.cuda.get_device_name(index) for index in range(count)]
    except Exception as error:  # a broken installation is what this command is there to show
        facts["torch_error"] = str(error).partition("\n")[0]
    return facts


for command in (demo, advise, learn, predict, infer):
    app.command(cls=PlainCommand)(command)
app.add_typer(store, name="store")
for command in (serve, run, reproduce, report, bench, env):
    app.command(cls=PlainCommand)(command)
