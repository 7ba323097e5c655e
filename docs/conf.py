"""How Sphinx builds the site: `make docs`. Nothing is fetched while it is built or read."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]  # the latter has benchmarks/

from outputs import code_version  # noqa: E402

import impresslearn  # noqa: E402

project = "ImpressLearn"
author = "The ImpressLearn authors"
copyright = author
version = release = impresslearn.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "docstrings",
    "outputs",
    "pictures",
    "records",
]
exclude_patterns = ["_build", "_extensions", "_templates", "figures"]
templates_path = ["_templates"]
nitpicky = False
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks" / code_version())
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_merge_streams = True

autosummary_generate_overwrite = True
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"ImpressLearn {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def _name_heading_levels(app, page, template, context, doctree):
    """Screen readers need the level of the captions that the theme calls headings."""
    tree = context.get("furo_navigation_tree", "")
    leveled = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    context["furo_navigation_tree"] = leveled


# What Sphinx makes of a signature with a line for each parameter: definitions without terms.
PARAMETERS = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")


def _list_parameters(app, page, template, context, doctree):
    """Screen readers expect terms in a list of definitions, so parameters become a plain list."""
    if doctree is not None:
        context["body"] = PARAMETERS.sub(_plain_list, context["body"])


def _plain_list(definitions):
    return "<ul>\n" + definitions[1].replace("dd>", "li>") + "</ul>"


def setup(app):
    app.connect("html-page-context", _name_heading_levels, priority=900)
    app.connect("html-page-context", _list_parameters)
