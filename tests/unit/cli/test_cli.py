"""The command line as a whole: help, wrong usage, exit codes, closed pipes, start-up."""

import io
import json
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from support.command import GrowingLog, environment, on_terminal, processor_seconds, rocketc, start

from rocketc.cli.main import COMMANDS
from rocketc.cli.output import Out
from rocketc.cli.output import command as make_command
from rocketc.report.text import REASONS, visible, visible_json


@pytest.fixture
def log(tmp_path):
    """A store with three messages."""
    log = GrowingLog(tmp_path / "store" / "commitlog")
    for i in range(3):
        log.append("orders", b"body %d" % i, store_timestamp=1_700_000_000_000 + i)
    return log


def test_version(run):
    import rocketc as package

    assert run("--version") == (0, f"rocketc {package.__version__}\n", "")


def test_help_names_the_commands_with_two_examples_each(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert re.findall(r"^  (\S+)  .*\S$", out[out.index("Commands:") : out.index("Examples:")], re.M) == list(COMMANDS)
    assert run() == (0, out, "")  # without arguments it prints the help
    counts = {**dict.fromkeys(("top", "cat", "stats", "get", "put", "broker", "consume"), 3), "export": 4}
    for command in COMMANDS:
        code, out, err = run(command, "--help")
        assert (code, err) == (0, "")
        examples = out[out.index("Examples:") :]
        assert len(re.findall(rf"^ +rocketc {command} ", examples, re.M)) == counts.get(command, 2)
        assert max(map(len, out.splitlines())) <= 80
        assert run(command, "-h") == (0, out, "")


def test_help_of_cat_lists_every_option_and_token(run):
    _, out, _ = run("cat", "--help")
    options = "-t -q -o -c --from --to --tag --key --sql --grep -f -J --json -F --body --start --stop --crc --strict"
    for option in [*options.split(), "--no-unwrap", "--no-decompress"]:
        assert re.search(rf"^ .*(?<!\S){option}\b", out, re.M), option
    for token in "tpqoOsSkgThin%":
        assert f"%{token} " in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["cat"], "rocketc cat: Missing argument 'PATH...'"),
        (["info"], "rocketc info: Missing argument 'PATH'"),
        (["info", "a", "b"], "unexpected extra argument"),
        (["dog"], "rocketc: No such command 'dog'"),
        (["cat", "--jsn", "x"], "--jsn"),
        (["cat", "-c", "0", "x"], "-c"),
        (["cat", "-c", "many", "x"], "'many' is not a whole number"),
        (["cat", "-q", "-1", "x"], "-1 is less than 0"),
        (["cat", "-q", "2147483648", "x"], "more than 2147483647"),
        (["cat", "-o", "middle", "x"], "'middle' is neither a queue offset"),
        (["cat", "-o", "-0", "x"], "'-0' is neither a queue offset"),
        (["cat", "-o", "end", "x"], "add -F"),
        (["cat", "--start", "-5", "x"], "-5 is less than 0"),
        (["cat", "--stop", "9223372036854775808", "x"], "is more than"),
        (["cat", "--from", "yesterday", "x"], "'yesterday': a time is ISO-8601"),
        (["cat", "--to", "20260131", "x"], "2026-01-31"),
        (["cat", "--to", "1700000000", "x"], "1700000000000"),
        (["cat", "--sql", "a > ", "x"], "SQL filter, column 5: expected a property, a number"),
        (["stats", "--sql", "a = 1 b", "x"], "SQL filter, column 7: RocketMQ ignores this and what follows: 'b'"),
        (["export", "--sql", "'a'", "-o", "y.csv", "x"], "SQL filter, column 1: expected a condition, not a text"),
        (["cat", "--grep", "(", "x"], "'(' is not a regular expression"),
        (["cat", "-t", "/[/", "x"], "'[' is not a regular expression"),
        (["cat", "-f", "%t %z", "x"], "unknown token %z"),
        (["cat", "-f", "100%", "x"], "unknown token %"),
        (["cat", "-f", r"a\q", "x"], r"unknown token \q"),
        (["cat", "-f", r"a\x1", "x"], r"unknown token \x"),
        (["cat", "-J", "-f", "%t", "x"], "exclude each other"),
        (["cat", "--body", "rot13", "x"], "rot13"),
        (["cat", "--crc", "some", "x"], "some"),
        (["get", "x"], "give one of --phy-offset, --id and --key"),
        (["get", "--phy-offset", "1", "--key", "k", "x"], "give one of --phy-offset, --id and --key"),
        (["get", "--phy-offset", "1", "-t", "a", "x"], "-t can't be used with --phy-offset"),
        (["get", "--phy-offset", "-1", "x"], "-1 is less than 0"),
        (["get", "--key", "", "x"], "the id or key is empty"),
        (["get", "--key", "k", "-J", "-f", "%t", "x"], "exclude each other"),
        (["get", "--key", "k", "-f", "%z", "x"], "unknown token %z"),
        (["get", "--key", "k", "-c", "0", "x"], "-c"),
        (["decode-id"], "Missing argument 'ID...'"),
        (["decode-id", "--month", "2026-13", "x"], "'2026-13' is not a month such as 2026-01"),
        (["decode-id", "--month", "0000-01", "x"], "'0000-01' is not a month"),
        (["decode-id", "--file-size", "0", "x"], "0 is less than 1"),
        (["verify"], "Missing argument 'PATH...'"),
        (["verify", "--jobs", "0", "x"], "0 is less than 1"),
        (["top", "-n", "nan", "x"], "'nan' is not a time in seconds"),
        (["top", "-n", "0", "x"], "not in the range 0.1<=x<=3600"),
        (["completion"], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, args, says):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("rocketc") and err.endswith("--help`\n") and err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["cat", "-t", "\udcff"],
        ["cat", "--tag", "\udcff"],
        ["cat", "--key", "\udcff"],
        ["get", "--key", "\udcff"],
        ["stats", "-t", "\udcff"],
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_an_argument_that_is_not_utf8(run, log, args):
    """A shell passes the byte 0xFF like this."""
    code, out, err = run(*args, log.folder.parent)
    assert (code, out) == (2, "")
    assert err.startswith("rocketc") and r"'\udcff' is not UTF-8" in err and err.count("\n") == 1


def test_wrong_usage_from_the_shell():
    done = rocketc("cat", "--nope")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


@pytest.mark.parametrize("command", ["cat", "info", "verify"])
class TestNothingToRead:
    def test_no_such_path(self, run, tmp_path, command):
        code, out, err = run(command, tmp_path / "nope")
        assert (code, out, err) == (3, "", f"rocketc: {tmp_path}/nope: No such file or directory\n")

    def test_a_folder_without_a_log(self, run, tmp_path, command):
        code, out, err = run(command, tmp_path)
        assert (code, out) == (3, "")
        assert err.startswith(f"rocketc: {tmp_path}: no commit log here") and err.count("\n") == 1

    def test_a_log_without_files(self, run, tmp_path, command):
        (tmp_path / "commitlog").mkdir()
        code, _, err = run(command, tmp_path)
        assert (code, err) == (0, f"rocketc: nothing to read: {tmp_path}\n")

    def test_an_empty_file(self, run, tmp_path, command):
        (tmp_path / "empty").touch()
        code, _, err = run(command, tmp_path / "empty")
        assert (code, err) == (0, f"rocketc: nothing to read: {tmp_path}/empty\n")

    def test_a_file_of_zeros(self, run, tmp_path, command):
        (tmp_path / f"{0:020d}").write_bytes(bytes(4096))
        code, _, err = run(command, tmp_path)
        assert (code, err) == (0, f"rocketc: nothing to read: {tmp_path}\n")

    def test_a_picture(self, run, tmp_path, command):
        (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)
        code, out, err = run(command, tmp_path / "x.png")
        assert code == 1
        assert "bad_size" in out + err and "Traceback" not in err

    def test_no_permission(self, run, log, monkeypatch, command):
        import os

        opened = os.open

        def refuse(path, *more, **options):
            if str(path).endswith(f"{0:020d}"):
                raise PermissionError(13, "Permission denied", path)
            return opened(path, *more, **options)

        monkeypatch.setattr(os, "open", refuse)
        code, out, err = run(command, log.folder)
        assert code == 3
        assert "ermission" in out + err and "Traceback" not in err


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(golden):
    store = golden("flights-2013-01").path
    with start("cat", "--json", store) as cat:
        head = subprocess.run(["head", "-1"], stdin=cat.stdout, capture_output=True, timeout=60)
        cat.stdout.close()
        assert cat.wait(timeout=60) == 0
        assert (head.stdout.count(b"\n"), cat.stderr.read()) == (1, b"")


@pytest.mark.some(8)
@pytest.mark.parametrize("unbuffered", [None, "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "line",
    [
        "cat",
        "cat --json",
        "info",
        "info --json",
        "get --phy-offset 0",
        "verify",
        "verify --json",
        "--help",
        "cat --help",
    ],
)
def test_a_pipe_that_is_closed_before_the_first_byte(log, line, unbuffered):
    """The other end of the pipe is closed before the first byte is written."""
    path = [] if "--help" in line else [log.folder]
    with start(*line.split(), *path, env={"PYTHONUNBUFFERED": unbuffered}) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("unbuffered", [None, "1"], ids=["buffered", "unbuffered"])
def test_a_full_disk_is_reported(log, unbuffered):
    with open("/dev/full", "wb") as full:
        done = rocketc("cat", log.folder, stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (3, b"rocketc: can't write: No space left on device\n")


@pytest.mark.parametrize("args", [["--help"], ["cat", "--help"], ["--version"], []])
def test_a_full_disk_is_reported_by_the_help_too(args):
    with open("/dev/full", "wb") as full:
        done = rocketc(*args, stdout=full)
    assert (done.returncode, done.stderr) == (3, b"rocketc: can't write: No space left on device\n")


@pytest.mark.parametrize("module", ["logging", "click", "rocketc.cli.output"])
def test_ctrl_c_while_modules_are_loaded_causes_no_traceback(tmp_path, module):
    """The signal arrives when this module is imported: logging by the package itself, click by its command line."""
    code = f"""if True:
        import os, signal, sys
        class Finder:
            def find_spec(name, *more):
                if name == {module!r}:
                    os.kill(os.getpid(), signal.SIGINT)
        for name in ("logging", "click"):
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, Finder)
        sys.argv = ["rocketc", "info", "nowhere"]
        from rocketc_command import main
        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=60
    )
    assert done.returncode in (130, -signal.SIGINT)
    assert done.stderr.strip() == "" and done.stdout == ""


def test_an_ignored_ctrl_c_stays_ignored():
    code = """if True:
        import rocketc_command, signal, sys
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.argv = ["rocketc"]
        try:
            rocketc_command.main()
        except SystemExit:
            print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.stdout.endswith("True\n") and done.stderr == ""


def test_a_closed_stream_causes_no_traceback(log, golden):
    def run(command, path):
        return subprocess.run(
            ["sh", "-c", f'exec "$0" -m rocketc {command}', sys.executable, path],
            capture_output=True, cwd="/", env=environment(), timeout=60,
        )  # fmt: skip

    done = run('cat "$1" >&-', log.folder)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"rocketc: can't write: stdout is closed\n")
    done = run('cat "$1" 2>&-', log.folder)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 3)
    done = run('cat "$1" 2>&-', log.folder / "nope")
    assert (done.returncode, done.stdout) == (3, b"")
    done = run('cat "$1" 2>&-', golden("v533-bitrot").path)
    assert (done.returncode, done.stdout.count(b"\n")) == (1, 1499)  # the lost report does not stop it
    done = run("cat --wrong 2>&-", log.folder)
    assert (done.returncode, done.stdout) == (2, b"")


def test_ctrl_c_exits_with_130_even_if_the_reader_is_gone():
    def run():
        try:
            raise KeyboardInterrupt
        finally:
            raise BrokenPipeError

    assert CliRunner().invoke(make_command()(run)).exit_code == 130


class Slowly(io.RawIOBase):
    """A raw stream that takes at most 1,000 bytes at once, as an unbuffered stream may."""

    def __init__(self):
        self.got = b""

    def writable(self):
        return True

    def write(self, data):
        self.got += bytes(data[:1000])
        return min(len(data), 1000)


def test_output_is_written_completely_and_in_blocks(monkeypatch):
    raw = Slowly()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, write_through=True))
    text = bytes(range(256)) * 300
    with Out() as out:
        for i in range(0, len(text), 100):
            out.write(text[i : i + 100])
            assert len(raw.got) in (0, 65600)
        assert len(raw.got) == 65600
    assert raw.got == text
    with Out(live=True) as out:
        out.write(b"x")
        assert raw.got == text + b"x"


def test_color_is_for_terminals_that_support_it(log):
    for command in ("cat", "info", "verify"):
        assert b"\x1b[" not in rocketc(command, log.folder).stdout
        code, text = on_terminal(command, log.folder)
        assert (code, "\x1b[" in text) == (0, True), text
        for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            code, text = on_terminal(command, log.folder, env=unwanted)
            assert (code, "\x1b[" in text) == (0, False), unwanted
        assert "\x1b[" in on_terminal(command, log.folder, env={"NO_COLOR": ""})[1]  # empty means not set


def test_control_characters_are_made_visible():
    hostile = "a\x1b]0;title\x07\n\t\r\x00\x7f\x9b31m\u202e\u2028\ud800\\é漢🚀"
    assert visible(hostile) == ("a\\x1b]0;title\\x07\\n\\t\\r\\x00\\x7f\\x9b31m\\u202e\\u2028\\ud800\\é漢🚀")
    assert visible_json('"\x7f\x9b\u202e"') == '"\\u007f\\u009b\\u202e"'


@pytest.mark.some(5)
@pytest.mark.parametrize(
    "line",
    [
        "info {store}",
        "info {store}/config/topics.json",
        "verify {store}",
        "rebuild {store}",
        "salvage {store} {new}",
        "clean {store} --older-than 1h --dry-run",
        "top {store} --interval 0.1",
        "put {store} {body} -t orders",
        "export {store} -o {new}.csv",
        "stats {store} --by topic",
    ],
    ids=lambda line: line.split()[0],
)
def test_json_on_a_terminal_contains_no_control_characters(tmp_path, line):
    name = "n\x9b31m\u202e"
    places = {"store": tmp_path / name, "new": tmp_path / f"new {name}", "body": tmp_path / "body"}
    places["body"].write_text("body\n")
    log = GrowingLog(places["store"] / "commitlog")
    log.append(name, b"body")
    (places["store"] / "config").mkdir()
    (places["store"] / "config/topics.json").write_text('{"topicConfigTable":{}}')
    args = [part.format_map(places) for part in line.split()]
    code, text = on_terminal(*args, "--json")
    told = next(part for part in text.splitlines() if part.startswith("{"))
    assert code == 0 and name in json.dumps(json.loads(told), ensure_ascii=False), text
    assert not {"\x9b", "\u202e"} & set(text)


def test_every_reason_has_a_description():
    from pathlib import Path

    core = (Path(__file__).parents[3] / "pyx/rocketc/_status.pyx").read_text()
    named = set(re.findall(r'"((?:bad|missing|too|file)_\w+|truncated|zeroed)"', core)) - {"bad_batch"}
    assert len(named) > 10 and named <= set(REASONS)


@pytest.mark.measure
def test_help_starts_quickly():
    """Under 150 ms of CPU time: equal to the elapsed time on a quiet machine, and stable on a busy one."""
    tries = []
    while not tries or (min(tries) >= 0.15 and len(tries) < 30):  # other processes on the same core slow it down
        before = processor_seconds()
        assert rocketc("--help").returncode == 0
        tries.append(processor_seconds() - before)
    assert min(tries) < 0.15


def test_large_modules_are_loaded_only_when_needed():
    heavy = "rich pyarrow numpy lz4 backports pyspark asyncio importlib.metadata"
    code = f"import sys, rocketc.cli.main; print([name for name in {heavy.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd="/")
    assert (done.stdout, done.stderr) == ("[]\n", "")
