"""The site that `make docs` makes (tools/site): it has all pages, its drawings are correct, it loads nothing."""

import asyncio
import html
import importlib.util
import inspect
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from support.pages import PAGES, ROOT

import rocketc

SITE = ROOT / "tools/site"
BUILT = ROOT / "build/site"


def made(name, folder=SITE):
    """Import a module of tools/site, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(SITE))  # its modules import each other
REFERENCE, DRAWINGS, DOCSTRINGS = made("reference"), made("drawings"), made("docstrings")


def test_every_page_is_in_the_navigation():
    nav = (SITE / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r": ([\w/.-]+\.md)$", nav, re.M)
    assert len(listed) == len(set(listed))
    in_docs = {
        str(path.relative_to(ROOT / "docs")) for path in PAGES if path.name != "README.md" or "docs" in path.parts
    }
    reference = {f"reference/{page}.md" for page in REFERENCE.PAGES} | {"reference/cli.md"}
    notebooks = {f"notebooks/{path.stem}.md" for path in ROOT.glob("examples/notebooks/*.ipynb")}
    assert {name for name in listed if not name.startswith("project/")} == (
        in_docs - {"../README.md"}
    ) | reference | notebooks


def test_the_site_does_not_have_the_rows_of_figures():
    """A figure in the text has its row of docs/measured as a comment; an example of such a comment stays."""
    site = made("content").Site()
    page = "puts 72<!-- embedded: put / SQLite --> times\n\n```\nputs 72<!-- embedded: put / SQLite -->\n```\n"
    assert site.for_the_site("page.md", page) == page.replace("<!-- embedded: put / SQLite -->", "", 1)


def test_reference_has_every_public_name():
    assert not REFERENCE.missing()
    names = set(re.findall(r"^::: (\S+)$", "".join(REFERENCE.pages().values()), re.M))
    assert names >= {f"rocketc.{name}" for name in rocketc.__all__}


def test_a_public_name_without_a_page_is_reported(monkeypatch):
    monkeypatch.setattr(rocketc, "__all__", [*rocketc.__all__, "Lost"])
    monkeypatch.setattr(rocketc, "Lost", object(), raising=False)
    with pytest.raises(ValueError, match="names on no page of the reference: Lost"):
        REFERENCE.pages()


def test_reference_has_every_command_and_option():
    import click

    from rocketc.cli.main import cli

    text = html.unescape(REFERENCE.command_page())
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        part = text.partition(f"## rocketc {name} ")[2].partition("\n## ")[0]
        for option in [each for each in command.params if isinstance(each, click.Option) and not each.hidden]:
            assert all(word in part for word in option.opts), (name, option.opts)


@pytest.mark.parametrize(
    ("docstring", "shown"),
    [
        ("Reads it.\n\npath  a folder\nstart, stop  where\n      it is\nRaises ValueError.", "|2|Raises ValueError."),
        ("a = None     one\nbcd = 10     two\n\nend", "|2|end"),
        ("Says it.\n\n    code\n\n>>> 1\n1", "```pycon\n>>> 1\n1\n```"),
    ],
)
def test_docstrings(docstring, shown):
    text = DOCSTRINGS.rendered(docstring)
    if shown.startswith("|"):
        rows, last = int(shown[1]), shown[3:]
        assert len(re.findall(r"^\| <code>", text, re.M)) == rows
        assert text.rstrip().endswith(last)
    else:
        assert text.endswith(shown)
        assert "```python\ncode\n```" in text


def test_names_in_docstrings_are_links():
    text = DOCSTRINGS.prose(
        "put() raises StoreFullError, Scan.batches() does not; a Damage in b_c, see docs/damage.md",
        "rocketc.MessageStore",
    )
    assert re.findall(r"\][(\[](.*?)[)\]]", text) == [
        "rocketc.MessageStore.put",
        "rocketc.StoreFullError",
        "rocketc.Scan.batches",
        "../damage.md",
    ]
    assert "a Damage in <code>b&#95;c</code>" in text


def drawn_in(path):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S)
    return [block for language, block in blocks if "┌" in block and not language]


DRAWN = [path for path in PAGES if drawn_in(path)]


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_drawings_agree_with_the_text(path):
    pictures = re.findall(r'<div class="drawing">.*?</div>', DRAWINGS.drawn(path.read_text(encoding="utf-8")), re.S)
    for block, picture in zip(drawn_in(path), pictures, strict=True):
        words = " ".join(html.unescape(each) for each in re.findall(r"<text[^>]*>(.*?)</text>", picture))
        assert words.split() == re.sub("[│─┌┐└┘├┤┬┴┼]", " ", block).split()
        [strokes] = re.findall(r'<path d="([^"]*)"/>', picture)
        joins = 2 * len(re.findall("[│─┌┐└┘]", block)) + 3 * len(re.findall("[├┤┬┴]", block)) + 4 * block.count("┼")
        assert strokes.count("M") == joins


def test_a_drawing_of_bytes_has_titles_with_offsets():
    shown = DRAWINGS.drawn((ROOT / "docs/format.md").read_text(encoding="utf-8"))
    titles = [html.unescape(each) for each in re.findall("<title>(.*?)</title>", shown)]
    assert "bodyCRC: byte 8 to 11, i32: CRC-32 of the body as stored, without its top bit" in titles
    assert "hashSlotCount: byte 32 to 35, i32: slots in use (up to 4.7.0: units). Not the number of slots" in titles
    kinds = re.findall(r'<g class="(\w+)">', shown)
    assert kinds.count("other") < len(kinds) / 10


# ------------------------------------------------------------------------------------------ the built site


class Counted(HTMLParser):
    """The number of some elements in a page's text, and what the page loads."""

    def __init__(self, text):
        super().__init__()
        self.counts, self.loads, self._within = Counter(), [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        said = dict(attributes)
        if tag == "article":
            self._within = True
        if tag in ("script", "img", "iframe", "source") and "src" in said:
            self.loads.append(said["src"])
        if tag == "link" and said.get("rel") in ("stylesheet", "preconnect", "icon", "preload", "modulepreload"):
            self.loads.append(said["href"])
        if self._within and tag in ("li", "tr", "h1", "h2", "h3", "blockquote", "strong", "em"):
            self.counts[tag] += 1

    def handle_endtag(self, tag):
        if tag == "article":
            self._within = False


@pytest.fixture(scope="module")
def built():
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: tools/setup.sh docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(SITE / "mkdocs.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return BUILT


@pytest.mark.long
def test_the_site_loads_nothing_from_elsewhere(built):
    pages = list(built.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        for url in [url for url in Counted(page.read_text(encoding="utf-8")).loads if not url.startswith("data:")]:
            assert not re.match(r"(\w+:)?//", url), f"{page.relative_to(built)} loads {url}"
            assert page.name == "404.html" or (page.parent / url.partition("?")[0]).exists(), f"{page}: {url}"
    loading = [
        path
        for path in [*built.rglob("*.css"), *built.rglob("*.svg")]
        if re.search(r"url\(['\"]?(\w+:)?//|@import", path.read_text(encoding="utf-8"))
    ]
    assert loading == []


@pytest.mark.long
def test_the_reference_has_each_member_with_its_docstring(built):
    """Signatures come from the stubs, docstrings from the compiled objects."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in (built / "reference").glob("*.html")}
    assert [name for name, text in pages.items() if re.search(r"\]\[rocketc\.", text)] == []  # links without a target
    whole = "".join(pages.values())
    anchors = set(re.findall(r' id="(rocketc[\w.]*)"', whole))
    assert anchors >= {f"rocketc.{name}" for name in rocketc.__all__}
    for name in rocketc.__all__:
        thing = getattr(rocketc, name)
        if inspect.isclass(thing) and not issubclass(thing, (int, BaseException)):
            own = {member for base in thing.__mro__ if base.__module__.startswith("rocketc") for member in vars(base)}
            methods = {each for each in own if not each.startswith("_") and inspect.isroutine(getattr(thing, each))}
            assert anchors >= {f"rocketc.{name}.{member}" for member in methods}, name
    [put] = re.findall(r'id="rocketc\.MessageStore\.put".*?(?=<h3)', pages["store.html"], re.S)
    words = " ".join(html.unescape(re.sub("<[^>]+>", " ", put)).split())
    assert "queue_id : int = 0" in words and "Source: RocketMQ CommitLog.asyncPutMessage." in words


@pytest.mark.long
@pytest.mark.parametrize("path", [p for p in PAGES if "docs" in p.relative_to(ROOT).parts], ids=lambda p: p.stem)
def test_the_site_shows_what_github_shows(built, path):
    """Lists, tables and headings: the site's Markdown needs an empty line in places where GitHub's does not."""
    name = path.relative_to(ROOT / "docs")
    page = built / (name.parent / "index.html" if name.name == "README.md" else name.with_suffix(".html"))
    on_github = Counted("<article>" + MarkdownIt("commonmark").enable("table").render(path.read_text(encoding="utf-8")))
    assert Counted(page.read_text(encoding="utf-8")).counts == on_github.counts


@pytest.mark.long
def test_search_works_from_a_folder(built):
    """The search needs a Worker, which a page opened as a file does not have: tools/site/worker.js replaces it."""
    browse = made("browse", ROOT / "tools")
    command = browse.installed()
    if command is None:
        pytest.skip("needs chromium")

    async def searched():
        async with browse.opened(command) as browser:
            await browser.open("howto/salvage.html?q=damaged")
            for _ in range(100):
                await asyncio.sleep(0.1)
                if found := await browser.value("document.querySelectorAll('.md-search-result__item').length"):
                    return found

    assert asyncio.run(searched()) > 3
