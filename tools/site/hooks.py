"""The hooks that MkDocs calls while it builds the site; see mkdocs.yml."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # MkDocs imports only this file
import content  # noqa: E402

SITE = content.Site()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, text in SITE.made().items():
        files.append(File.generated(config, name, content=text))
    for name, source in (("assets/site.css", "site.css"), ("assets/iframe-worker.js", "worker.js")):
        files.append(File.generated(config, name, abs_src_path=str(HERE / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.parent is None:
        page.meta["hide"] = ["navigation"]  # this page does not have neighbors
    return SITE.for_the_site(page.file.src_uri, markdown)
