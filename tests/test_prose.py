"""The check of the project's language: each rule finds its example, and each kind of text is read."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools" / "prose.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prose"] = module  # its dataclasses need it
    spec.loader.exec_module(module)
    return module


prose = load()


def found(path: Path, text: str) -> list[tuple[int, str]]:
    """Return (line, words) of the findings in a file with this text."""
    path.write_text(text)
    return sorted(finding[:2] for piece in prose.texts(path) for finding in prose.findings(piece))


@pytest.mark.parametrize("rule", prose.RULES, ids=lambda rule: rule.example)
def test_each_rule_finds_its_example(rule, tmp_path):
    assert found(tmp_path / "page.md", f"# Title\n\n{rule.example}\n")
    assert found(tmp_path / "code.py", f'"""{rule.example}"""\n')
    assert rule.instead and rule.why


def test_plain_sentences_pass(tmp_path):
    text = "There is no index. The reader returns nothing else, or else raises. It needs a user who may write.\n"
    assert found(tmp_path / "page.md", text) == []


CODE = '''"""The module: nobody reads it."""

# First line of a comment, then the
# anew of the second.
x = "anew"
message = "the log is made anew"  # nobody
text = f"{anew} of the {anew.b}"
path = "a/anew/b.txt"


def test_nobody_reads(value):
    """Do it.

    value  nobody gives it

    >>> print("anew of this anew")
    anew anew anew
    """
    call("this is", help="Whoever reads it.")
'''


def test_every_kind_of_text_in_code_is_read(tmp_path):
    assert found(tmp_path / "code.py", CODE) == [
        (1, "nobody"),
        (4, "anew"),
        (6, "anew"),
        (6, "nobody"),
        (11, "nobody"),
        (14, "nobody"),
        (19, "Whoever"),
    ]


def test_cython_is_read_like_python(tmp_path):
    code = "cdef int f(self, int64_t* p) except? -1:  # nobody\n    return c'x' <int>p  # anew\n"
    assert found(tmp_path / "code.pyx", code) == [(1, "nobody"), (2, "anew")]


def test_programs_in_strings_are_not_read(tmp_path):
    code = 'SCRIPT = """\nif told: anew\n"""\nrun(\n    """\nif told: anew\n"""\n)\n'
    assert found(tmp_path / "code.py", code) == []
    assert found(tmp_path / "code.pyx", 'cdef extern from *:\n    """\n    #else anew\n    """\n') == []


def test_values_of_a_message_are_not_read(tmp_path):
    assert found(tmp_path / "code.py", """text = f"give a {f'name {anew}' if nobody else 'value'}, then go"\n""") == []


def test_a_sentence_after_an_argument_list_is_one_of_its_own(tmp_path):
    words = " ".join(["word"] * (prose.MOST_WORDS - 5))
    assert found(tmp_path / "code.py", f'"""Do it.\n\nvalue  {words}\nIt {words}.\n"""\n') == []


def test_comments_of_c_are_read(tmp_path):
    code = '/* nobody\n * anew */\nint anew; // somebody\nchar *s = "// nobody";\n'
    assert found(tmp_path / "code.h", code) == [(1, "nobody"), (2, "anew"), (3, "somebody")]


@pytest.mark.parametrize("name", ["run.sh", "Makefile", "mkdocs.yml", "pyproject.toml"])
def test_comments_of_scripts_are_read(name, tmp_path):
    assert found(tmp_path / name, "anew: nobody\n# made anew\nrun  # somebody\n") == [(2, "anew"), (3, "somebody")]


def test_pages_are_read_without_their_code(tmp_path):
    page = "Made `anew` in [anew](anew.md).\n\n```python\nanew\n```\n\n- a list\n- anew\n\n| a | nobody |\n"
    assert found(tmp_path / "page.md", page) == [(1, "anew"), (8, "anew"), (10, "nobody")]


def test_sentences_of_pages_and_docstrings_have_a_limit(tmp_path):
    words = " ".join(["word"] * prose.MOST_WORDS)
    for name, text in (("page.md", "{}\n"), ("code.py", '"""{}"""\n')):
        assert found(tmp_path / name, text.format(f"{words.capitalize()}. Another one.")) == []
        assert len(found(tmp_path / name, text.format(f"{words.capitalize()} more. Another one."))) == 1
    assert found(tmp_path / "code.py", f"# {words} more\n") == []


def test_a_closed_pipe_ends_it_quietly():
    done = subprocess.run(["sh", "-c", f"'{sys.executable}' '{TOOL}' --rules | true"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_says_where_and_fails():
    done = subprocess.run([sys.executable, TOOL, "--rules"], capture_output=True, text=True)
    assert done.returncode == 0 and "amiss" in done.stdout
    page = ROOT / "tests" / "golden" / "prose.md"
    try:
        page.write_text("Made anew.\n")
        done = subprocess.run([sys.executable, TOOL, str(page)], capture_output=True, text=True)
    finally:
        page.unlink()
    assert done.returncode == 1
    assert done.stdout == "tests/golden/prose.md:1: anew: again, or rebuilt\n"
    assert done.stderr == "prose: 1 findings\n"
