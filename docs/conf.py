"""The documentation site: `make docs` builds it; a warning fails."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx_gallery.directives import imgsgnode
from sphinx_gallery.sorting import FileNameSortKey

from safedial import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # tutorials call `safedial`
os.environ["COLUMNS"] = "100"
os.environ["TTY_COMPATIBLE"] = "0"  # no progress bars in the output of commands
profile = HERE.parent / "build" / "ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text(
    'c.IPKernelApp.log_level = "ERROR"'
)  # each kernel says that it uses TCP
os.environ["IPYTHONDIR"] = str(profile.parent)
logging.getLogger("traitlets").setLevel(logging.WARNING)

project, author, version, release = "safedial", "The safedial authors", __version__, __version__
project_copyright = author
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.katex",
]
exclude_patterns = ["gallery", "auto_gallery/*.ipynb", "auto_gallery/*.py", "auto_gallery/*.json"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:(class|obj|data|exc)", ".*")
]  # types in signatures: few of them have an entry of their own
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings hold a class
highlight_language = "text"

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_in_temp = True  # pages write files, and a second build must not find them
nb_execution_raise_on_error = True
nb_execution_timeout = 300

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "within_subsection_order": FileNameSortKey,
    "write_computation_times": False,
}

html_theme = "furo"
html_title = f"safedial {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
katex_css_path = (
    "katex/katex.min.css"  # with its fonts, as KaTeX 0.16.22 ships them; the program comes with the extension
)
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def literal_formulas(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Indented lines of a docstring are formulas or files, to be shown as they are."""
    for number in range(len(lines) - 1, 0, -1):
        before = [line for line in lines[:number] if line.strip()]
        begins = lines[number].startswith("    ") and not lines[number - 1].strip()
        if begins and before and not before[-1].startswith("    ") and not before[-1].endswith(":"):
            lines[number:number] = ["::", ""]


def terminal_commands(app: Any, doctree: Any) -> None:
    """A cell that runs commands shows them as they are typed in a terminal."""
    for block in doctree.findall(nodes.literal_block):
        if "cell_input" in block.parent.get("classes", ()) and re.match(r"!|%env ", block.astext()):
            shown = re.sub(r"^%env ", "export ", re.sub(r"^!", "", block.astext(), flags=re.M), flags=re.M)
            block.rawsource, block.children, block["language"] = shown, [nodes.Text(shown)], "text"


def gallery_pictures(app: Any, doctree: Any) -> None:
    """A picture of the gallery has a box of its own, which scrolls on a phone."""
    for picture in list(doctree.findall(imgsgnode)):
        box = nodes.container(classes=["picture"])
        picture.replace_self(box)
        box += picture


def page_titles(app: Any, docname: str, source: list[str]) -> None:
    """A link whose text is a file's name, as it reads best in the repository, has the title of its page here."""
    source[0] = re.sub(r"\[[a-z_]+\.md\]\(((?:\.\./)?[a-z_]+\.md(?:#[\w-]+)?)\)", r"[](\1)", source[0])


def setup(app: Any) -> None:
    """Add what is generated from the package to the pages of the reference."""
    import reference_pages

    app.connect("doctree-read", terminal_commands)
    app.connect("doctree-read", gallery_pictures)
    app.connect("source-read", reference_pages.fill)
    app.connect("source-read", page_titles)
    app.connect("autodoc-process-docstring", literal_formulas, priority=400)
