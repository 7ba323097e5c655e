"""Imports point one way, no file hides more than one idea, and public names cost nothing unused."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import impresslearn
from toys import in_a_new_process

ROOT = Path(__file__).parents[1] / "src" / "impresslearn"
FILES = sorted(ROOT.rglob("*.py"))

LAYERS = (  # from low to high; a unit imports strictly lower layers, or itself
    {"errors"},
    {"files", "statistics", "tables", "checks"},
    {"data", "kernels", "plotting"},
    {"networks", "streams"},
    {"training"},
    {"masks"},
    {"coefficients"},
    {"inference"},
    {"export", "store"},
    {"learner"},
    {"methods"},
    {"integrations", "serve"},
    {"cli"},
    {"__main__"},
)
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}
ONLY = {"streams": {"errors", "checks", "tables", "data", "streams"}}


def imported_paths(file: Path) -> list[list[str]]:
    """What a file imports, at the top or inside a function, as parts of dotted names."""
    paths: list[list[str]] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            paths += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative imports hide the direction"
            paths += [[*(node.module or "").split("."), alias.name] for alias in node.names]
    return [path[1:] for path in paths if path[0] == "impresslearn" and len(path) > 1]


def imported_files(file: Path) -> set[Path]:
    """Files of this package that a file imports from."""
    files = set()
    for path in imported_paths(file):
        place = ROOT.joinpath(*path)
        if not place.is_dir() and not place.with_suffix(".py").exists():  # a name in a module
            place = place.parent
        files.add(place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))
    return files - {file}


def test_imports_point_one_way():
    for file in FILES:
        unit = file.relative_to(ROOT).with_suffix("").parts[0]
        if unit == "__init__":
            continue
        lower = {other for other in LEVEL if LEVEL[other] < LEVEL[unit]}
        imported = {path[0] for path in imported_paths(file)} - {"__version__"}
        forbidden = imported - ONLY.get(unit, lower | {unit})
        assert not forbidden, f"{file.relative_to(ROOT)} imports {forbidden}"


def test_no_file_imports_in_a_circle():
    inner = [file for file in FILES if file != ROOT / "__init__.py"]
    graph = {file: imported_files(file) & set(inner) for file in inner}
    assert len(list(TopologicalSorter(graph).static_order())) == len(inner)


def test_one_idea_per_file():
    for file in FILES:
        assert file.stem not in {"utils", "util", "helpers", "common", "misc"}
        most = 700 if file.name == "learner.py" else 600  # the verbs, half of which is docstrings
        assert len(file.read_text(encoding="utf-8").splitlines()) <= most, file.relative_to(ROOT)


def test_the_file_map_names_every_file():
    root = ROOT.parents[1]
    listed, folder = set(), ""
    for line in (root / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if line.startswith(("src/", "benchmarks/")) and line.endswith("/"):
            folder = line
        elif line == "```":
            folder = ""
        elif folder and line.startswith("  "):
            listed.add(folder + line.split()[0])
    files = [*FILES, *(root / "benchmarks").rglob("*.py")]
    assert listed == {file.relative_to(root).as_posix() for file in files}


@pytest.mark.parametrize("name", impresslearn.__all__)
def test_resolves(name):
    value = getattr(impresslearn, name)
    assert value is getattr(impresslearn, name)
    assert name in dir(impresslearn)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(impresslearn.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname: f"impresslearn.{alias.name}" if node.module == "impresslearn" else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == impresslearn._MODULE_OF


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Impresslearner'"):
        _ = impresslearn.Impresslearner


def test_import_alone_loads_nothing_heavy():
    loaded = in_a_new_process("-c", "import impresslearn, sys; print(*sys.modules)").split()
    assert not {"torch", "numpy", "numba", "altair", "rich"} & set(loaded)


def test_the_learner_loads_what_it_always_needs():
    loaded = in_a_new_process(
        "-c", "import impresslearn as il, sys; il.open_store; print(*sys.modules)"
    )
    assert "torch" in loaded.split()
    assert not {"scipy", "sklearn", "altair", "rich.table", "fastapi"} & set(loaded.split())
