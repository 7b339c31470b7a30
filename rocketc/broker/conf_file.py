"""broker.conf, the file that a broker was started with: settings that tools change are written back to it.

Source: RocketMQ Configuration.update, persist. RocketMQ writes a new file with all of its keys, without the comments;
here only the lines of changed keys change.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping

from rocketc.config import properties
from rocketc.files.durable import errors_named
from rocketc.namesrv.config import escaped
from rocketc.tables.table_file import replace_file

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BEFORE_THE_VALUE = re.compile(r"[ \t\f]*(?:[^\\=: \t\f\r\n]|\\.)+(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
_BLANK = " \t\f"


class ConfFile:
    """The file of a broker's settings. TableWriter writes its changes. change() is called on the loop.

    path  of the file. It is read again for each write, so that a line that a person has changed meanwhile stays

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "broker.conf"
    >>> _ = path.write_text("# ours\\nbrokerPermission = 6\\n")
    >>> conf = ConfFile(path)
    >>> conf.change({"brokerPermission": "4", "fileReservedTime": "48"}, {"deleteWhen": "05"})
    >>> conf.persist(), conf.changed, path.read_text()
    (True, False, '# ours\\nbrokerPermission = 4\\nfileReservedTime=48\\n')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._lock = threading.Lock()
        self._changes: dict[str, str] = {}
        self._confirmed: dict[str, str] = {}

    @property
    def changed(self) -> bool:
        """Whether persist() has something to look at."""
        return bool(self._changes or self._confirmed)

    def change(self, changes: Mapping[str, str], confirmed: Mapping[str, str]) -> None:
        """Set keys to new values; persist() writes them.

        confirmed  keys that have these values in the broker already: they are written only if the file has another one
        """
        with self._lock:
            self._confirmed.update((key, value) for key, value in confirmed.items() if key not in self._changes)
            self._changes.update(changes)

    def persist(self) -> bool:
        """Write the changes, durably. Return False if the file has them already.

        The previous version is kept as `.bak`; a symbolic link stays one. Raises StoreIOError or StoreFullError, and
        ValueError if the file is not a properties file; the changes are then still to be written. One thread at a time.
        """
        with self._lock:
            changes, confirmed = self._changes, self._confirmed
            self._changes, self._confirmed = {}, {}
        try:
            return (changes or confirmed) != {} and self._write(changes, confirmed)
        except BaseException:
            with self._lock:
                self._changes = {**changes, **self._changes}
                self._confirmed = {**confirmed, **self._confirmed}
            raise

    def _write(self, changes: Mapping[str, str], confirmed: Mapping[str, str]) -> bool:
        path = os.path.realpath(self.path)
        with errors_named(path), open(path, encoding="iso-8859-1", newline="") as file:
            text = file.read()
        there = dict(properties(text))
        wanted = {**{key: value for key, value in confirmed.items() if key in there}, **changes}
        wanted = {key: value for key, value in wanted.items() if there.get(key) != value}
        if wanted:
            replace_file(path, changed_text(text, wanted).encode("iso-8859-1"), keep_mode=True)
        return bool(wanted)


def changed_text(text: str, changes: Mapping[str, str]) -> str:
    """Return a properties file with other values of some keys. All other lines stay as they are.

    Of several lines with a key, the last one counts, so that one changes; the lines of unknown keys are appended.

    >>> changed_text("# a comment\\na: 1\\nb=2", {"a": "3", "c": "4"})
    '# a comment\\na: 3\\nb=2\\nc=4\\n'
    """
    lines = _logical_lines(text)
    end = next((line[len(line.rstrip("\r\n")) :] for line in reversed(lines) if line.endswith(("\r", "\n"))), "\n")
    last = {key: at for at, line in enumerate(lines) for key, _ in properties(line)}
    for key, value in changes.items():
        if key in last:
            lines[last[key]] = _changed_line(lines[last[key]], key, value)
            continue
        if lines and not lines[-1].endswith(("\r", "\n")):
            lines[-1] += end
        if lines and _continues(lines[-1]):
            lines[-1] += end  # or the last line would take the new one as its rest
        lines.append(f"{key}={escaped(value)}{end}")
    return "".join(lines)


def _changed_line(line: str, key: str, value: str) -> str:
    """Return the line of a key with another value, with the blanks and the sign before the value."""
    body = line.rstrip("\r\n")
    before = _BEFORE_THE_VALUE.match(body)
    is_one_line = "\r" not in body and "\n" not in body
    return (before[0] if before and is_one_line else f"{key}=") + escaped(value) + line[len(body) :]


def _logical_lines(text: str) -> list[str]:
    """Cut a properties file into lines, with their ends; what a backslash at the end of a line continues is one."""
    found: list[str] = []
    for line in _LINE.findall(text):
        if found and _continues(found[-1]):
            found[-1] += line
        else:
            found.append(line)
    return found


def _continues(line: str) -> bool:
    """Whether the next line belongs to this logical one."""
    last = _LINE.findall(line)[-1].rstrip("\r\n")
    is_comment = line.lstrip(_BLANK).startswith(("#", "!"))
    return not is_comment and (len(last) - len(last.rstrip("\\"))) % 2 == 1
