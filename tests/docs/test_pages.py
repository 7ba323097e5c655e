"""The code of pages, which runs where the site is built, and the names that they document."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import impresslearn as il

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_extensions"))

from page_code import PageError, blocks, run_page  # noqa: E402

PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if "_build" not in path.parts
}


@pytest.mark.nightly
def test_the_first_example_says_what_it_reached(tmp_path):
    """README.md is no page of the site."""
    accuracy, size = "\n".join(run_page(PAGES["README.md"], tmp_path)).split()[:2]
    assert float(accuracy) > 0.85
    assert size == "311"


def test_a_method_of_ones_own_takes_ten_lines():
    code = "\n".join(each.code for each in blocks(PAGES["docs/guide/own-method.md"].read_text()))
    own = code[code.index("X = [") : code.index("result = ")]
    assert len([line for line in own.splitlines() if line.strip()]) <= 10


def test_the_code_of_pages_is_linted(tmp_path):
    """As one program a page; imports may stand where they are first needed."""
    for name, path in PAGES.items():
        programs = [each.code for each in blocks(path.read_text("utf-8")) if each.kind == "python"]
        (tmp_path / f"{name.replace('/', '_')[:-3]}.py").write_text("\n".join(programs))
    command = [sys.executable, "-m", "ruff", "check", "--select", "E,F,B,I,UP"]
    command += ["--ignore", "E402,I001,B018", "--line-length", "100", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_public_name_is_in_the_api():
    pages = "\n".join(path.read_text("utf-8") for path in (DOCS / "api").glob("*.md"))
    listed = r"^(?:\.\. auto\w+::|  ) (impresslearn\.\S+)"
    documented = re.findall(listed, pages, flags=re.MULTILINE)
    assert len(documented) == len(set(documented))
    short = {each.rpartition(".")[2] for each in documented}
    rooms = {room: getattr(il, room) for room in il._SUBMODULES}
    wanted = {name for name in il.__all__ if name not in (*rooms, "__version__")}
    for module in rooms.values():
        names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        wanted |= {name for name in names if callable(getattr(module, name))}
    assert wanted - short == NO_PAGE


NO_PAGE = {"Allocation", "InferenceMethod", "Mode", "ScoreRule", "import_torchvision"}
"""Types of arguments, which their functions spell out, and help with torchvision."""


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_documents_beside_the_site_lead_somewhere(name):
    """Those of pages are checked when the site is built."""
    text = (ROOT / name).read_text("utf-8")
    links = [each for each in re.findall(r"\]\(([^)#]+)", text) if "://" not in each]
    assert [each for each in links if not (ROOT / each).exists()] == []


def write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_blocks_share_names_files_and_commands(tmp_path):
    page = write(
        tmp_path,
        "```python\nx = 2\nopen('n.txt', 'w').write('7')\n```\n\n```bash\ncat n.txt\n```\n\n"
        "```python\n# helper.py\ny = 1\n```\n\n```bash\ncat helper.py\n```\n\n"
        "<!-- not run: it would fail -->\n```python\nraise ValueError\n```\n\n"
        "```text\nshown\n```\n\n```python\nprint(x + 1)\n```\n",
    )
    assert run_page(page, tmp_path) == ["", "7", "", "# helper.py\ny = 1", "", "", "3"]


def test_a_block_that_fails_is_named(tmp_path):
    for code, says in {
        "```python\nprint(1)\nprint(2 / 0)\n```": r"page\.md:4(.|\n)*line 5(.|\n)*ZeroDivision",
        "```bash\necho told\nfalse\n```": r"page\.md:4: status 1\ntold",
        "<!-- server: http://127.0.0.1:8000/ -->\n```bash\necho no\n```": "answers(.|\n)*no",
    }.items():
        with pytest.raises(PageError, match=says):
            run_page(write(tmp_path, f"A page.\n\n{code}\n"), tmp_path)


def test_a_server_is_ended_with_its_page(tmp_path):
    code = (
        "<!-- server: http://127.0.0.1:8000/ -->\n"
        f"```bash\n{sys.executable} -m http.server 8000 --bind 127.0.0.1\n```\n\n"
        "```python\nimport urllib.request\n"
        "url = 'http://127.0.0.1:8000/'\nprint(urllib.request.urlopen(url).status, url)\n```\n"
    )
    before = Path.cwd()
    assert run_page(write(tmp_path, code), tmp_path)[1] == "200 http://127.0.0.1:8000/"
    assert Path.cwd() == before
