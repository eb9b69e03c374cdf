"""The site that Sphinx builds of the pages: `make docs`. Its side bar has the pages as docs/index.md lists them."""

import os.path
import re
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.highlighting import lexers

project = "Restkeeper"
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "examples/*/*.md"]
exclude_patterns = [".*", "bench", "build", "restkeeper", "tests"]  # .venv is large

extensions = ["myst_parser"]
suppress_warnings = ["misc.highlighting_failure"]  # "…" in an example is no Python
myst_heading_anchors = 4  # levels of headings that links can lead to, with the names that forges give them

smartquotes = False  # a quote in a sentence can be that of a value

html_theme = "furo"
html_title = "Restkeeper"
html_show_copyright = False
html_copy_source = False
html_use_index = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_additional_pages = {"index": "first.html"}

_FILE = re.compile(r"^```(\w+) (\S+\.\w+)$", re.M)  # the first line of a block: its language, and the file that it is


def name_files(app: Sphinx, name: str, source: list[str]) -> None:
    """Show the names of files above their blocks."""
    source[0] = _FILE.sub(r"```{code-block} \1\n:caption: `\2`\n", source[0])


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the pages that the index links, for each of its parts, where they are first linked."""
    if name != root_doc:
        return
    known = {root_doc}
    _, *parts = re.split(r"^## ", source[0], flags=re.M)
    for part in parts:
        caption, _, text = part.partition("\n")
        entries = [f":caption: {caption}", ":hidden:"]
        for title, link in re.findall(r"\[([^]]*)\]\(([^)#:]+)\.md[)#]", text):
            page = os.path.normpath(f"docs/{link}")
            if page not in known:  # one outside of docs/ is called as its link is: several are READMEs
                entries.append(f"{title.capitalize()} </{page}>" if link.startswith("../") else f"/{page}")
            known.add(page)
        source[0] += "\n```{toctree}\n" + "\n".join(entries) + "\n```\n"


def pack(app: Sphinx, exception: Exception | None) -> None:
    """Write the site as one file beside its folder: the same bytes for the same pages, as it has no times."""
    if exception:
        return
    site = Path(app.outdir)
    with ZipFile(new := site.with_suffix(".new"), "w") as packed:
        for file in sorted(path for path in site.rglob("*") if path.is_file()):
            packed.writestr(ZipInfo(file.relative_to(site).as_posix()), file.read_bytes(), ZIP_DEFLATED)
    new.replace(site.with_suffix(".zip"))  # which a server may have open


def setup(app: Sphinx) -> None:
    lexers["log"] = TextLexer()
    app.connect("build-finished", pack)
    app.connect("source-read", name_files)
    app.connect("source-read", add_navigation)
