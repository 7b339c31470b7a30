"""`rocketc put` in this process, and what it has stored."""

import io
import re
import sys

import rocketc as library

NEW = r"^rocketc: new store: /.*\n"
SMALL = ("--file-size", "64KiB")  # per log file


def messages(path):
    return list(library.scan(path))


def bodies(path):
    return [message.body for message in messages(path)]


def put_command(run, monkeypatch, tmp_path):
    """Return put(*args, stdin=b""), which runs the command in this process, in its own folder.

    It returns the exit code, stdout and stderr. The line on stderr about a new store is removed, unless `keep_new` is
    true.
    """
    monkeypatch.chdir(tmp_path)

    def put(*args, stdin=b"", keep_new=False):
        (tmp_path / "stdin").write_bytes(stdin)
        with open(tmp_path / "stdin", "rb") as file:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            code, out, err = run("put", *args)
        return code, out, err if keep_new else re.sub(NEW, "", err, count=1, flags=re.MULTILINE)

    return put
