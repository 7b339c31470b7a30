"""bench/run.py, report.py, figures.py and compare.py with given rows; the benches themselves are run manually."""

import importlib
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
pytestmark = pytest.mark.skipif(not BENCH.exists(), reason="the bench folder is missing")


@pytest.fixture
def module(monkeypatch):
    """Import a file of bench/."""
    monkeypatch.syspath_prepend(BENCH)
    yield importlib.import_module
    for name in ("common", "compare", "figures", "report", "run"):
        sys.modules.pop(name, None)


def row(case="put", against="Java", ratio=2.0, goal=None, ours=(1, 2, 3), theirs=(1, 1, 1), unit="M/s", **more):
    told = {"bench": "append", "case": case, "against": against, "ratio": ratio, "goal": goal, "unit": unit}
    return {**told, "ours": list(ours), "theirs": list(theirs), "ratios": [ratio, ratio], **more}


def point(figure, series, x):
    return {"figure": figure, "series": series, "x": x}


# ---------------------------------------------------------------- report
def test_missed_goals_are_bold_and_counted(module):
    report = module("report")
    rows = [row("a", ratio=2.0, goal=2), row("b", ratio=1.99, goal=2), row("c")]
    text = report.page(report.Results({"machine": "M"}, rows, []), {})
    assert "3 rows; 2 have a goal: 1 met, 1 missed." in text
    assert "| 2.00 | 2.00 | a |" in text and "| **1.99** | 2.00 | b |" in text
    assert "- machine: M" in text and "## append" in text and text.count("| c |") == 1


def test_a_row_has_medians_and_the_spread(module):
    report = module("report")
    text = report.line(row(ours=(0.5, 1.2345, 1234567), theirs=(7, 7, 7), case="a|b"), with_goal=False)
    assert text == "| 2.00 | a\\|b | Java | 1.23 (0.500 to 1,230,000) | 7.00 | M/s |"


def test_a_curve_is_drawn_by_second(module):
    report = module("report")
    one = row("memory", against="80 MB", ratio=2.0, theirs=(80, 80, 80), unit="MB", curve=[10, 20, 40, 79.9, 80])
    assert report.curve_line(one) == "`▂▃▅██` 10.0 to 80.0 MB; a full block is 80.0"
    assert report.curve_line({**one, "curve": [0, 160]}) == "`▁█` 0 to 160 MB; a full block is 160"
    page = report.page(report.Results({}, [one, row("other")], []), {})
    assert "## By second" in page and page.count("a full block") == 1
    assert "## By second" not in report.page(report.Results({}, [row("other")], []), {})


def test_each_second_looks_at_once(module):
    with module("common").each_second(lambda: 7.0) as found:
        assert found == [7.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.00123, "0.00123"), (9.996, "10.00"), (123.4, "123"), (98765, "98,800"), (math.inf, "inf")],
)
def test_numbers_have_three_digits(module, value, text):
    assert module("report").number(value) == text


def test_plots_have_a_curve_for_each_side(module, tmp_path):
    report = module("report")
    rows = [row(f"put, {x} B", point=point("sizes, messages", "put", x)) for x in (1024, 16, 128)]
    rows += [row("scan", point=point("threads, gain", "scan", 2), ratio=1.5, ratios=[1.4, 1.6])]
    ours, theirs = report.curves("sizes, messages", rows)
    assert (ours.name, [x for x, *_ in ours.points]) == ("rocketc: put", [16, 128, 1024])
    assert (theirs.name, theirs.points[0]) == ("put: Java", (16, 1, 1, 1))
    (gain,) = report.curves("threads, gain", rows)
    assert gain.points == [(2, 1.4, 1.5, 1.6)]
    page = report.write(report.Results({}, rows, []), tmp_path)
    assert "![Messages a second by size of body](sizes-messages.svg)" in page.read_text()
    first = (tmp_path / "sizes-messages.svg").read_bytes()
    assert b"rocketc: put" in first and b"<svg" in first
    report.write(report.Results({}, rows, []), tmp_path)
    assert (tmp_path / "sizes-messages.svg").read_bytes() == first, "the same rows must give the same bytes"


def test_every_figure_of_a_bench_is_known(module):
    known = module("report").FIGURES
    sources = "".join(path.read_text() for path in BENCH.glob("*.py"))
    for start in ('Point("', 'Point(f"'):
        for part in sources.split(start)[1:]:
            name = part.split('"')[0].split("{")[0]
            assert any(figure.startswith(name) for figure in known), name


@pytest.mark.parametrize("line", ["{", "7", '"x"', "null"])
def test_a_line_that_is_not_a_result(module, line):
    with pytest.raises(SystemExit, match="line 2 is not a benchmark result"):
        module("report").Results.read([json.dumps(row()), line])


def test_published_results_are_the_measured_ones(module, tmp_path):
    report = module("report")
    case = report.HEADLINES["append"][0]
    rows = [row(case, ratio=1.2345, goal=2), row(case, against="RocksDB", goal=1), row("else", goal=1)]
    (tmp_path / "README.md").write_text(f"before\n{report.BEGIN}old\n{report.END}after\n")
    page = report.publish(report.Results({"machine": "M"}, rows, []), tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert text.startswith(f"before\n{report.BEGIN}| work") and text.endswith(f"{report.END}after\n")
    assert text.count("\n| `append`") == 1 and f"| `append`: {case} | Java; RocksDB | **1.23**; 2.00 | 2; 1 |" in text
    assert report.Results.read((page.parent / "results.jsonl").read_text().splitlines()).rows == rows
    (tmp_path / "README.md").write_text(report.BEGIN)
    with pytest.raises(SystemExit, match="the README does not contain"):
        report.publish(report.Results({}, rows, []), tmp_path)


def test_new_rows_are_added_to_the_published_ones(module):
    """A row replaces the one with its names; a new one follows the rows of its bench; the environment names the run."""
    report = module("report")
    other = {**row("else"), "bench": "scan"}
    published = report.Results({"when": "then", "machine": "M"}, [row("a"), row("b"), other], [])
    new = report.Results({"when": "now"}, [row("c"), row("a", ratio=9.0), {**row("d"), "bench": "new"}], [])
    found = report.added(published, new)
    assert [(one["bench"], one["case"], one["ratio"]) for one in found.rows] == [
        *(("append", "a", 9.0), ("append", "b", 2.0), ("append", "c", 2.0)),
        *(("scan", "else", 2.0), ("new", "d", 2.0)),
    ]
    assert found.environment == {"when": "then", "machine": "M", "added": "append, new: now"}
    again = report.added(found, report.Results({"when": "later"}, new.rows, []))
    assert again.environment["added"] == "append, new: later" and again.rows == found.rows
    more = report.added(again, report.Results({"when": "today"}, [other], []))
    assert more.environment["added"] == "append, new: later; scan: today"


def test_the_readme_has_the_figures_that_were_published(module):
    report = module("report")
    root = BENCH.parent
    published = report.Results.read((root / "docs/measured/results.jsonl").read_text().splitlines())
    readme = (root / "README.md").read_text()
    assert report.between_marks(readme, report.headlines(published)) == readme
    cases = [(row["bench"], row["case"]) for row in published.rows]
    for bench, begins in report.HEADLINES.items():
        for begin in begins:
            assert any(name == bench and case.startswith(begin) for name, case in cases), (bench, begin)


# ---------------------------------------------------------------- figures in texts
PUT = row("put, 1", ratio=72.14, goal=4, ours=(1.5, 2.63, 9.13))
NOT_RATIOS = {"comparison.md": ("0.1",)}  # version 0.1
GET = [row("get, 1", ratio=0.998, goal=1), row("get, 2", ratio=0.872, goal=1), row("get, 2", "C", ratio=1.5, goal=1)]


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("puts 1<!-- append: put, 1 / Java --> times", "72"),
        ("puts 1,234.5<!-- append: put, 1 / Java = ours -->, and", "2.6"),
        ("1-2<!-- append: put, 1 / Java = goal -->", "4"),
        ("in 2026, 7<!-- append: put, 1 / Java = least -->", "in 2026, 1.5"),
        ("| 1<!-- append: put, 1 / Java = most --> |", "| 9.1"),
        ("1<!-- append: get, ... / ... -->", "0.87-1.5"),
        ("1<!-- append: get, 2 / C & append: put, 1 / Java -->", "1.5-72"),
        ("1, 1<!-- missed append: get, ... / ... -->", "0.872-0.998, 1"),
    ],
)
def test_a_marked_figure_is_written(module, text, new):
    """What is before and after the figure, and the mark, stay as they are."""
    written = module("figures").current(text, [PUT, *GET], "page.md")
    assert new in written.partition("<!--")[0] and written.partition("<!--")[1:] == text.partition("<!--")[1:]
    assert module("figures").current(written, [PUT, *GET], "page.md") == written


@pytest.mark.parametrize(
    ("mark", "error"),
    [
        ("append: putt / Java", "does not have a row 'append: putt / Java'; name another row, or remove the figure"),
        ("missed append: put, 1 / Java", "does not have a row 'append: put, 1 / Java' that misses its goal"),
        ("append: put, 1 / Java = our", "'our' is not one of ratio, goal, ours"),
        ("append: ... / Java = ours", "have several units: M/s, us"),
        ("append: put, 1", "is not FIGURE<!-- BENCH: CASE / AGAINST -->"),
        ("append: free / Java = goal", "is without a goal"),
    ],
)
def test_a_wrong_mark_is_an_error_with_its_line(module, mark, error):
    rows = [PUT, *GET, row("free", unit="us")]
    with pytest.raises(module("figures").MarkError, match=r"^page\.md:3: ") as raised:
        module("figures").current(f"\n\nputs 7<!-- {mark} --> times", rows, "page.md")
    assert error in str(raised.value)


def test_all_wrong_marks_of_all_texts_are_named_at_once(module, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        "7<!-- append: a / Java -->\n7<!-- append: put, 1 / Java -->, 8<!-- append: b / Java -->\n"
    )
    (tmp_path / "docs/page.md").write_text("7 <!-- append: put, 1 / Java --> after a space\n")
    with pytest.raises(SystemExit) as raised:
        module("figures").changed(tmp_path, [PUT])
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["README.md:1", "README.md:2", "docs/page.md:1"]
    assert "'append: b / Java'" in lines[1] and "is not FIGURE<!--" in lines[2]


def test_publishing_writes_the_marked_figures(module, tmp_path):
    """A mark without its row ends it before anything is written."""
    report = module("report")
    (tmp_path / "docs/howto").mkdir(parents=True)
    (tmp_path / "README.md").write_text(f"{report.BEGIN}{report.END}7<!-- append: put, 1 / Java -->\n")
    page = tmp_path / "docs/howto/page.md"
    page.write_text("7<!-- append: put, 1 / Java --> times\n")
    report.publish(report.Results({}, [PUT], []), tmp_path)
    assert page.read_text() == "72<!-- append: put, 1 / Java --> times\n"
    assert (tmp_path / "README.md").read_text().endswith("72<!-- append: put, 1 / Java -->\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=r"README\.md:.*does not have a row"):
        report.publish(report.Results({}, [row("other")], []), tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_ratios_without_a_mark_are_found(module):
    lines = [
        "72 times as fast, 3.2 times the speed",
        "0.69 of it; 0.5 s, 0.1.0, 72 hours",
        *("```", "7 times as fast", "```"),
        "8<!-- x --> times as fast",
        "2-3x; 29 times `struct`",
    ]
    found = list(module("figures").unmarked("\n".join(lines)))
    assert found == [(1, "72"), (1, "3.2"), (2, "0.69"), (7, "2-3"), (7, "29")]


def test_all_texts_have_the_published_figures(module):
    """Without marks the ratios of README, docs and bench/README would be those of some older run."""
    report, figures = module("report"), module("figures")
    root = BENCH.parent
    rows = report.Results.read((root / figures.PUBLISHED).read_text().splitlines()).rows
    assert not figures.changed(root, rows), "python bench/figures.py writes them"
    for path in figures.paths(root):
        if path.parent != BENCH:  # its tables have experiments too
            other = NOT_RATIOS.get(path.name, ())
            left = [(line, ratio) for line, ratio in figures.unmarked(path.read_text()) if ratio not in other]
            assert not left, (path, left)


def test_each_missed_goal_is_explained(module):
    report, figures = module("report"), module("figures")
    rows = report.Results.read((BENCH.parent / figures.PUBLISHED).read_text().splitlines()).rows
    text = (BENCH / "README.md").read_text()
    assert not figures.unexplained(text, rows)
    assert len(figures.unexplained("", rows)) == sum(row["goal"] is not None and not report.met(row) for row in rows)
    lines = text.partition("| work, against |")[2].partition("\n\n")[0].split("\n")[2:]
    assert len(lines) > 10
    for line in lines:
        assert "<!-- missed " in line.split("|")[2] or "not published; `bench_" in line.split("|")[2], line


# ---------------------------------------------------------------- compare
def test_the_median_is_between_order_statistics(module):
    """Six values give a confidence of 97 %, five less than 95 %; eleven do not need the least and the greatest."""
    ranges = module("compare").median_range
    assert ranges([3, 1, 2, 6, 5, 4]) == (1, 6, 1 - 2 / 64)
    assert ranges([1, 2, 3, 4, 5])[2] == 1 - 2 / 32 < 0.95
    low, high, confidence = ranges(list(range(11)))
    assert (low, high) == (1, 9) and confidence == pytest.approx(1 - 2 * 12 / 2048)
    assert ranges([1.0])[2] == 0


def test_noise_and_changes_are_distinguished(module):
    """At most 1 in 20 unchanged pairs may be reported as a change; a change of 10 % in noise of 3 % is always found."""
    compare, rnd = module("compare"), random.Random(7)
    told = [compare.verdict([rnd.gauss(0, 0.03) for _ in range(8)]) for _ in range(400)]
    wrong = sum(one.startswith(("FASTER", "SLOWER")) for one in told)
    assert 0 < wrong < 400 * 0.05
    for change, word in ((0.1, "FASTER"), (-0.1, "SLOWER")):
        assert all(compare.verdict([rnd.gauss(change, 0.03) for _ in range(8)]).startswith(word) for _ in range(50))
    assert compare.verdict([0.1] * 5) == "5 pairs: too few to tell from noise"


def write(path, *rows):
    path.write_text("".join(json.dumps(one) + "\n" for one in [{"environment": {}}, *rows]))
    return path


def env():
    """An environment in which the scripts can import the files next to them."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def run(script, *arguments):
    command = [sys.executable, BENCH / script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env(), timeout=120)


def test_pairs_of_results_are_compared(tmp_path):
    files = []
    for n in range(6):
        files.append(write(tmp_path / f"before{n}", row(ratio=2 + n / 100), row("gone", ratio=1)))
        files.append(write(tmp_path / f"after{n}", row(ratio=1.5 + n / 100, goal=2), row("new", ratio=3)))
    done = run("compare.py", *files)
    assert done.returncode == 1, done.stderr
    assert "ratio 2.02 -> 1.52 (-24.7 %), goal 2 MISSED; SLOWER: -25.0 % to -24.4 %, 96.9% sure" in done.stdout
    assert "only before: 1x" in done.stdout and "only after: 3x" in done.stdout
    assert run("compare.py", *files[:2]).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["a"], "in pairs"),
        (["missing", "missing"], "No such file"),
        (["--base", ".", "missing.py"], "--base needs one script"),
        (["--base", str(BENCH.parent), str(BENCH / "bench_record.py")], "another checkout"),
    ],
)
def test_compare_refuses_wrong_arguments(arguments, text):
    done = run("compare.py", *arguments)
    assert done.returncode != 0 and text in done.stderr and "Traceback" not in done.stderr


# ---------------------------------------------------------------- run
SCRIPT = """
import json, sys, time
print(json.dumps({row}), flush=True)
{then}
"""


def test_run_keeps_the_output_of_each_script(tmp_path):
    """A script that fails does not stop the others, and the results name it."""
    good, bad = tmp_path / "bench_good.py", tmp_path / "bench_bad.py"
    good.write_text(SCRIPT.format(row=row("good", goal=1), then="assert '--quick --seconds 2' in ' '.join(sys.argv)"))
    bad.write_text(SCRIPT.format(row=row("bad", goal=3), then="sys.exit(3)"))
    into = tmp_path / "into"
    done = run("run.py", "--quick", "--seconds", "2", "--into", into, bad, good)
    assert done.returncode == 1, done.stderr
    assert "append: good" in done.stdout and "2 goals, 1 missed" in done.stdout
    assert "bench_bad.py ended with exit code 3" in done.stderr
    lines = [json.loads(line) for line in (into / "results.jsonl").read_text().splitlines()]
    assert lines[0]["environment"]["run"] == "bench/run.py --quick --seconds 2"
    assert [line.get("case", line.get("failed")) for line in lines[1:]] == ["bad", "exit code 3", "good"]
    page = (into / "results.md").read_text()
    assert "**bad ended with an error: exit code 3**" in page and "| **2.00** | 3.00 | bad |" in page
    assert str(Path.home()) not in page and str(BENCH) not in page


def test_run_refuses_a_missing_script(tmp_path):
    done = run("run.py", "--into", tmp_path / "into", tmp_path / "bench_none.py")
    assert done.returncode == 2 and "no such file" in done.stderr and not (tmp_path / "into").exists()


def test_an_interrupted_run_keeps_finished_results(tmp_path):
    import signal

    script = tmp_path / "bench_slow.py"
    script.write_text(SCRIPT.format(row=row("slow"), then="time.sleep(60)"))
    command = [sys.executable, BENCH / "run.py", "--into", tmp_path / "into", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=env()) as child:
        assert "append: slow" in child.stdout.readline()
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130 and "the rows so far are kept" in said
    assert "| slow |" in (tmp_path / "into/results.md").read_text()
