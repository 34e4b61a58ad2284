"""The notebooks as pages of the site, though they lie beside `docs/`: a hook of mkdocs."""

from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files: Files, *, config: Any) -> Files:
    """Add every notebook below `notebooks/`."""
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links lead to where the site has the notebooks: pages name them as they lie in the checkout."""
    top = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"]({top}../notebooks/", f"]({top}notebooks/")
