"""Pictures of rocketc in a terminal: small, self-contained, shown by a page, and made by tools/screenshots.py."""

import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
from support.pages import PAGES, ROOT

SVG = "{http://www.w3.org/2000/svg}"
TOOL = ROOT / "tools/screenshots.py"
PICTURES = {"info", "stats", "verify", "top"}
WITH_JAVA = {"replicate", "fail-over", "transactions"}  # tools/*_picture*.py make them; they need Java


def text_of(path: Path) -> str:
    """The text in a picture; asserts that the picture is small and loads nothing."""
    assert path.stat().st_size < 60_000
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        *("svg", "style", "defs", "clipPath", "rect", "text", "g", "circle"),
    }
    used = [value for one in root.iter() for value in one.attrib.values()] + [one.text or "" for one in root.iter()]
    assert not re.findall(r"https?:|url\((?!#)|@import|@font-face", " ".join(used))
    return " ".join(one.text or "" for one in root.iter(f"{SVG}text")).replace("\xa0", " ")


def test_the_picture_of_transactions_shows_the_same_at_both_brokers():
    """The columns are equal, but for the header and the times."""
    root = xml.etree.ElementTree.parse(ROOT / "docs/images/transactions.svg").getroot()
    rows = {}
    for one in root.iter(f"{SVG}text"):
        rows.setdefault(float(one.attrib["y"]), []).append((float(one.attrib["x"]), one.text.replace("\xa0", " ")))
    lines = ["".join(text for _, text in sorted(row)) for _, row in sorted(rows.items())]
    sides = [[part.strip() for part in line.split("│")[1:-1]] for line in lines if line.count("│") == 3]
    assert len(sides) > 15
    assert [left for left, right in sides if left != right and not left.startswith("times")] == []
    told = "\n".join(left for left, _ in sides)
    for text in ("o-1 one bicycle", "o-3 three lamps", "o-3  check 1 of the broker; answer: COMMIT_MESSAGE"):
        assert text in told
    assert "two bells" not in told


def test_each_picture_is_small_and_shown():
    shown = {path.name for path in (ROOT / "docs/images").glob("*.svg")}
    assert shown >= {f"{name}.svg" for name in PICTURES | WITH_JAVA}
    pages = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    for path in (ROOT / "docs/images").glob("*.svg"):
        text_of(path)
        assert f"images/{path.name})" in pages


def test_pictures_of_brokers_show_no_machine():
    for name in WITH_JAVA:
        text = text_of(ROOT / f"docs/images/{name}.svg")
        assert not re.search(r"/tmp|/home|/root|/work", text)
        assert set(re.findall(r"\d+\.\d+\.\d+\.\d+", text)) == {"127.0.0.1"}


@pytest.mark.long
def test_pictures_show_the_current_output(tmp_path):
    """Each picture shows what its command prints now; `top` shows other rates each time."""
    subprocess.run([sys.executable, TOOL, "--folder", tmp_path], check=True, stdout=subprocess.DEVNULL)
    assert {path.stem for path in tmp_path.iterdir()} == PICTURES
    for name in PICTURES - {"top"}:
        assert text_of(tmp_path / f"{name}.svg") == text_of(ROOT / f"docs/images/{name}.svg")
    for folder in (tmp_path, ROOT / "docs/images"):
        assert re.search(r"messages/s.*flights-UA.*flights-HA", text_of(folder / "top.svg"), re.DOTALL)


def test_a_picture_that_loads_a_url_is_not_written(tmp_path):
    spec = importlib.util.spec_from_file_location("screenshots", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.save(
        "good",
        '<svg xmlns="http://www.w3.org/2000/svg"><style>@font-face { src: url("https://a") }</style></svg>',
        tmp_path,
    )
    assert "https" not in (tmp_path / "good.svg").read_text()
    for svg in ('<svg><image href="https://a"/></svg>', "<svg>" + 60_000 * " -" + "</svg>"):
        with pytest.raises(SystemExit):
            tool.save("bad", svg, tmp_path)
    assert not (tmp_path / "bad.svg").exists()
