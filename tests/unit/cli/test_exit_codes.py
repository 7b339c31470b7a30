"""The exit codes of all commands: one meaning in every command, in the code, in the docs and in the help."""

import ast
import os
import re
from pathlib import Path

import pytest

import rocketc
from rocketc.cli import exit_codes
from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, DONE, INTERRUPTED, NOT_FOUND, SUMMARY, USAGE
from rocketc.cli.main import COMMANDS

ROOT = Path(exit_codes.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
SMALL = {"mapped_file_size_commit_log": 1 << 16, "max_hash_slot_num": 100, "max_index_num": 1000}
MIDDLE = 30_000  # a byte of the only log file of `broken`

# Each runs in a folder with the stores `whole` (topic Orders), `new` (no message) and `broken` (damage in its log).
CASES = (
    (DONE, """
        info whole | info new | info whole/checkpoint | info new/commitlog
        cat whole | cat new | cat whole -t Orders | cat whole/checkpoint | cat whole --from 1970-01-01 --to 1970-01-02
        get whole --phy-offset 0 | get whole --key k1 -t Orders
        stats whole | stats new
        top whole --once -n 0.1 | top new --once -n 0.1
        verify whole | verify new | verify new/commitlog | verify whole new --json
        export whole -o made.jsonl | export new -o made.csv
        put whole -t Orders notes | put made -t Orders notes | put whole -t Orders nothing
        rebuild whole | rebuild new
        salvage whole made | salvage new made
        clean whole --dry-run | clean new --yes
        decode-id 7F00000100002A9F0000000000000000
        completion bash
        bench --help | broker --help | namesrv --help | admin --help | consume --help
        replicate --help"""),
    (DAMAGED, """
        info broken
        cat broken | cat broken --strict | cat broken/config/topics.json
        stats broken --crc body
        verify broken | verify whole broken
        export broken -o made.jsonl | export broken -o made.csv --strict
        put made --jsonl notes
        rebuild broken
        salvage broken made"""),
    (NOT_FOUND, """
        get whole --key nothing | get whole --phy-offset 1 | get new --phy-offset 0 |
        get whole --id 7F00000100002A9F0000000000FF0000"""),
    (USAGE, """
        info | info --nope whole
        cat whole --from never | cat whole -o end
        get whole
        stats whole --by nothing
        top whole --interval 0 | top whole/commitlog
        verify whole --jobs 0
        export whole -o there.csv | export whole -o x.unknown
        put whole | put notes -t t | put whole/commitlog -t t
        rebuild whole --only nothing
        salvage whole there.csv
        replicate whole | replicate nowhere made | replicate 127.0.0.1:1 whole/commitlog
        clean whole --older-than 1 | clean whole
        decode-id nope
        completion tcsh
        bench --path
        broker | broker whole --port x
        namesrv --port x
        consume whole -g billing | consume rocketmq://127.0.0.1:9876/orders | cat rocketmq://127.0.0.1:9876
        admin lags | admin lag -n nowhere | admin reset-offset g t --to never | admin permissions -n a:1"""),
    (COULD_NOT, """
        info nope | info none | info locked
        cat nope | cat none | cat locked | cat locked/checkpoint
        get nope --key k1 | get none --phy-offset 0 | get locked --phy-offset 0
        stats nope | stats none | stats locked
        top nope --once | top whole --conf nope --once
        verify nope | verify none | verify locked
        export nope -o made.csv | export whole -o nope/made.csv | export locked -o made.csv
        put whole -t Orders nope | put nope -t t --no-create notes | put other -t t notes | put open -t t notes
        rebuild nope | rebuild none | rebuild open
        salvage nope made | salvage none made
        replicate 127.0.0.1:1 open | replicate 127.0.0.1:1 made --from start
        clean nope --yes | clean none --yes | clean whole --conf nope
        bench --path nope
        broker notes --port 0 --namesrv-port 0 | broker open --port 0 --namesrv-port 0 | broker whole -c nope
        namesrv -c nope
        admin brokers -n 127.0.0.1:1 --timeout 1
        consume rocketmq://127.0.0.1:1/orders -g billing | cat rocketmq://127.0.0.1:1/orders"""),
)  # fmt: skip


def cases():
    for code, text in CASES:
        for line in text.replace("\n", "|").split("|"):
            if line.strip():
                yield pytest.param(code, line.split(), id=line.strip())


def break_store():
    with open(f"broken/commitlog/{0:020d}", "r+b") as file:
        file.seek(MIDDLE)
        file.write(b"\xee" * 1200)  # more than a record
    Path("broken/config").mkdir(exist_ok=True)
    Path("broken/config/topics.json").write_text("{broken")


def make_store(path, bodies):
    with rocketc.open(path, **SMALL) as store:
        for i in range(bodies):
            store.put("Orders", b"x" * 1000, keys=f"k{i}")


@pytest.fixture
def place(tmp_path, monkeypatch, args):
    """A folder with the stores and files that the command line names."""
    monkeypatch.chdir(tmp_path)
    for name in {arg.split("/")[0] for arg in args} & {"whole", "new", "broken", "locked", "open"}:
        make_store(name, 0 if name == "new" else 40)
        if name == "broken":
            break_store()
    Path("notes").write_text("a line\n")
    for empty in ("nothing", "there.csv"):
        Path(empty).touch()
    for folder in ("none", "other"):
        Path(folder).mkdir()
    Path("other/file").touch()
    opened = os.open

    def refuse(path, *more, **options):  # root may read every file
        if re.match(r"(.*/)?locked/(commitlog/0|checkpoint)", os.fspath(path)):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize(("code", "args"), list(cases()))
def test_each_command(place, run, code, args):
    with rocketc.open("open") if "open" in args else open(os.devnull):
        found, out, err = run(*args)
    assert found == code, out + err
    assert "Traceback" not in err
    if code in (USAGE, COULD_NOT) and args[0] != "verify" and args[0] != "info":
        lines = len([line for line in err.splitlines() if line.startswith("rocketc")])
        # scans say what they left out, then how much
        assert lines == 1 or ("damage: 1 range" in err and lines == 2), err


def test_each_command_has_cases():
    listed = {code: {line.values[1][0] for line in cases() if line.values[0] == code} for code, _ in CASES}
    assert listed[DONE] == listed[USAGE] == set(COMMANDS)
    assert listed[COULD_NOT] == set(COMMANDS) - {"decode-id", "completion"}  # they read no file


def test_the_codes_stand_in_one_place():
    """No command returns or exits with a number of its own."""
    for path in ROOT.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Return) and path.name not in ("exit_codes.py", "times.py", "info_files.py"):
                returned = (
                    [node.value] if not isinstance(node.value, ast.IfExp) else [node.value.body, node.value.orelse]
                )
                numbers = [each.value for each in returned if isinstance(each, ast.Constant)]
                assert not {type(number) for number in numbers} & {int}, f"{path.name}:{node.lineno}"


def test_the_docs_have_one_table_with_these_codes(run):
    text = (DOCS / "troubleshooting.md").read_text()
    table = text[text.index("| exit code |") :].split("\n\n")[0]
    codes = [int(code) for row in table.splitlines()[2:] for code in row.split("|")[1].replace(",", " ").split()]
    assert codes == [DONE, DAMAGED, USAGE, COULD_NOT, 129, 143, INTERRUPTED]
    tables = [page.name for page in DOCS.rglob("*.md") if "| exit code |" in page.read_text()]
    assert tables == ["troubleshooting.md"]
    assert " ".join(SUMMARY.split()) in " ".join(run("--help")[1].split())
