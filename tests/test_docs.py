"""The examples in docs/ and README.md are run and compared. support/pages.py says how to write a page."""

import gc
import re
from pathlib import Path

import pytest
from support.pages import PAGES, ROOT, Page, Wrong, matches

BY_NAME = {str(path.relative_to(ROOT)): path for path in PAGES}
READ = {name: Page(path) for name, path in BY_NAME.items()}

# The pages in which no block runs, and why. tests/spark/test_docs.py runs those that need Spark.
NOTHING_RUNS = {
    "docs/architecture.md": "no examples; tests/test_layers.py compares its drawing",
    "docs/comparison.md": "no examples; tests/test_comparison.py",
    "docs/glossary.md": "no examples; tests/test_glossary.py",
    "docs/howto/cluster.md": "tests/spark/test_cluster.py does what it shows, with a cluster of two",
    "docs/howto/cython.md": "tests/test_native_example.py builds and runs its module",
    "docs/howto/operate.md": "it shows mqadmin; tests/interop/test_mqadmin.py runs it",
    "docs/measured/results.md": "no examples; tests/test_bench_results.py",
    "docs/promises.md": "no examples; tests/test_promises.py",
    "docs/protocol.md": "no examples; tests/test_protocol_page.py",
}


def test_pages_in_which_nothing_runs_are_listed():
    assert sorted(NOTHING_RUNS) == [name for name, page in READ.items() if not page.runs and not page.needs_spark]


@pytest.mark.parametrize("name", [name for name, page in READ.items() if page.runs])
def test_page(name, golden, tmp_path, monkeypatch):
    page = READ[name]
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    not_tried = page.run(folder, golden)
    if "rocketmq://" in BY_NAME[name].read_text(encoding="utf-8"):
        gc.collect()  # scans of clusters that the page did not read to their end
    if not_tried:
        pytest.skip("; ".join(not_tried))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes from the headings of a page."""
    headings = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", BY_NAME)
def test_links_have_a_target(name):
    path = BY_NAME[name]
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            there = path.parent / file if file else path
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


def test_index_names_every_page():
    listed = re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs/README.md").read_text(encoding="utf-8"))
    assert sorted({f"docs/{name}" for name in listed}) == sorted(BY_NAME.keys() - {"README.md", "docs/README.md"})


# ------------------------------------------------------------------------------------------ the runner itself


@pytest.fixture
def run(golden, tmp_path, monkeypatch):
    """run(text): run a page with this text."""
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(text):
        path = tmp_path / "page.md"
        path.write_text(text)
        return Page(path).run(folder, golden)

    return run


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("", "", True),
        ("", "a", False),
        ("a b", "a b  ", True),
        ("a\nb", "a", False),
        ("a\n...", "a", True),
        ("a\n...", "a\nb\nc", True),
        ("...\nc", "a\nb\nc", True),
        ("...\nc", "c\nb", False),
        ("a\n...\nc\n...\ne", "a\nb\nc\nd\ne", True),
        ("a\n...\nx\n...\ne", "a\nb\nc\nd\ne", False),
        ("a\n...\ne", "a\nb", False),
        ("a\n...\na", "a", False),
        ("a ... c", "a b c", True),
        ("a ... c", "a b d", False),
        ("a.c", "abc", False),
    ],
)
def test_matches(shown, printed, same):
    assert matches(shown.splitlines(), printed.splitlines()) is same


STORE = "<!-- store: store=v533-bitrot -->\n"  # a small store


def test_correct_blocks(run):
    assert run(f"""{STORE}
```console
$ rocketc cat store -c 1 -f '%t\\n'
CrashA
$ echo a \\
> b |
> tr a c
c b
```
```console
$ touch never; echo without the command
```
<!-- not run: it would fail -->

```python
raise SystemError
```
```python
import rocketc
n = rocketc.scan("store", errors="skip").count()
open("store/made", "w").close()
```
```python
>>> n
1499
>>> import warnings; warnings.warn("text")
UserWarning: text
```
```console
$ ls store/made; no-such-program | rocketc --version
```
""") == ["page.md:31: bash: line 1: no-such-program: command not found"]
    assert not Path("never").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```console\n$ rocketc cat store -c 1 -f '%t'\nOther\n```", r"page.md:3: .*but it prints:\n    CrashA"),
        ("```console\n$ rocketc cat store -c\n```", "and ends with 2"),
        ("```console\nrocketc\n```", "page.md:3: a console block begins with"),
        ("```python\nn = 1\n1 / 0\n```", 'page.md", line 4, in <module>'),
        ("```python\n>>> 1\n2\n```", 'File "page.md", line 3, in page.md'),
        ("```python\n1", "page.md:2: this block does not end"),
        ("<!-- not run: -->\n```python\n1\n```", "says no reason"),
        ("<!-- not run: why -->\n# Title\n```python\n1\n```", "page.md:3: no block follows"),
    ],
)
def test_wrong_blocks_are_reported(run, text, told):
    with pytest.raises(Wrong) as caught:
        run(STORE + text)
    assert re.search(told, str(caught.value), re.S), caught.value


def test_blocks_for_spark(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("```python\n1\n```\n<!-- spark -->\n```python\nspark\n```\n```python\n1\n```\n")
    page = Page(path)
    assert [block.spark for block in page.blocks] == [False, True, False]
    assert page.needs_spark and not page.spark
    path.write_text("<!-- spark -->\n# Title\n```python\nspark\n```\n")
    assert Page(path).spark
