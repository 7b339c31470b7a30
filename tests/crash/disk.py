"""What a disk holds after a power cut: a model of which bytes and names are durable, and the images that it allows.

disk.c (LD_PRELOAD) notes what the engine does to the files of a folder; Disk follows these notes. Durable is only what
POSIX and Linux guarantee:

* the bytes that msync, fdatasync or fsync was called for, and the length of their file;
* the names in a folder, once that folder was synced;
* with syncfs (Linux), everything that existed when it was called.

An image may have any part of the rest. A page of 4096 bytes, or a sector of 512, has any content that it had since it
was last durable. The same is true of a file's length. A change of a name is in the image or not.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PAGE = 4096
SECTOR = 512
FOLDER = -1  # the file number of a folder
_PAGE_IS, _SIZE_IS, _NAMED, _UNNAMED, _RENAMED, _FOLDER_MADE, _FOLDER_GONE, _SYNCED, _NAMES_SYNCED, NOTE = range(1, 11)
_ALL_SYNCED = 11
_EVENT = struct.Struct("=IIqqq")
_ZEROS = bytes(PAGE)


class Event(NamedTuple):
    """One note of disk.c; `struct Event` there describes the numbers."""

    kind: int
    file: int
    a: int
    b: int
    text: bytes

    @property
    def is_sync(self) -> bool:
        return self.kind in (_SYNCED, _NAMES_SYNCED, _ALL_SYNCED)

    @property
    def new_name(self) -> str | None:
        """The path of a newly named file."""
        return os.fsdecode(self.text) if self.kind == _NAMED else None

    @property
    def renamed_to(self) -> str | None:
        """The new path of a renamed file."""
        return os.fsdecode(self.text).split("\0")[1] if self.kind == _RENAMED else None

    @property
    def old_name(self) -> str | None:
        """The path of a deleted file."""
        return os.fsdecode(self.text) if self.kind == _UNNAMED else None


class Recorder:
    """Notes what happens below a folder. The process must have been started with disk.c loaded before libc."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None)
        self._c.disk_take.restype = ctypes.c_size_t
        self._c.disk_note.argtypes = [ctypes.c_int64]

    def watch(self, root: Path) -> None:
        """Start to watch a folder; what it holds already is durable."""
        self._c.disk_watch(os.fsencode(root))
        for folder, folders, files in os.walk(root):
            for name in [*folders, *files]:
                self._c.disk_know(os.fsencode(os.path.join(folder, name)))
        self.note(0)

    def note(self, what: int) -> None:
        """Add a note of the test's own; its number comes back as Event.file."""
        self._c.disk_note(what)

    def fill(self, percent: int) -> None:
        """Let statvfs() report that this percentage of the disk is in use; 0: the real value."""
        self._c.disk_fill(percent)

    def take(self) -> list[Event]:
        """Return all notes, and stop watching the folder."""
        data = ctypes.POINTER(ctypes.c_char)()
        size = self._c.disk_take(ctypes.byref(data))
        events = list(_events(ctypes.string_at(data, size)))
        self._c.disk_stop()
        return events


def _events(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        kind, length, file, a, b = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield Event(kind, file, a, b, data[at : at + length])
        at += length


@dataclass
class _File:
    """The pages of a file by number; a missing page holds zeros.

    `pages` and `sizes` are the values since the file was last durable, oldest first.
    """

    durable: dict[int, bytes] = field(default_factory=dict)
    durable_size: int = 0
    pages: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    def sync(self, start: int, stop: int) -> None:
        self.durable_size, self.sizes = self.size, []
        for page in [page for page in self.pages if start < (page + 1) * PAGE and page * PAGE < stop]:
            self.durable[page] = self.pages.pop(page)[-1]

    @property
    def size(self) -> int:
        return self.sizes[-1] if self.sizes else self.durable_size

    def page(self, number: int) -> bytes:
        return self.pages[number][-1] if number in self.pages else self.durable.get(number, _ZEROS)


Change = tuple[str, int | None]  # a name and the number of its file, or FOLDER, or None: the name is deleted
Image = dict[str, tuple[int, dict[int, bytes]] | None]  # by path: a file's length and pages; None: a folder


class Disk:
    """The disk below a folder; follow() applies one note. Everything before the first NOTE is durable.

    If several processes use the folder one after the other, each has its own notes: see go_on().
    """

    def __init__(self) -> None:
        self._files: defaultdict[int, _File] = defaultdict(_File)
        self._durable: dict[str, int] = {"": FOLDER}
        self._names: dict[str, int] = {"": FOLDER}
        self._changes: list[tuple[str, list[Change]]] = []  # not durable: the folder, and the changes in it
        self._begun = False
        self._goes_on = False
        self._first = 0  # added to the file numbers in notes

    def go_on(self) -> Disk:
        """Continue with the notes of another process, which starts with the files of latest().

        Up to the first NOTE its notes list these files. What was not durable before is still not durable.
        """
        self._goes_on = True
        self._first = max(self._files, default=-1) + 1
        return self

    def follow(self, event: Event) -> None:
        if self._goes_on:
            self._find(event)
            return
        event = event._replace(file=event.file + self._first) if event.kind not in (NOTE, _ALL_SYNCED) else event
        kind = event.kind
        if kind == _PAGE_IS:
            self._files[event.file].pages.setdefault(event.a, []).append(event.text)
        elif kind == _SIZE_IS:
            self._files[event.file].sizes.append(event.a)
        elif kind == _SYNCED:
            self._files[event.file].sync(event.a, event.b)
        elif kind == _NAMES_SYNCED:
            folder = os.fsdecode(event.text)
            for where, changes in self._changes:
                if where == folder:
                    _change(self._durable, changes)
            self._changes = [one for one in self._changes if one[0] != folder]
        elif kind == _ALL_SYNCED:
            self._settle()
        elif kind == NOTE:
            if not self._begun:
                self._settle()
            self._begun = True
        else:
            self._follow_name(event)

    def _find(self, event: Event) -> None:
        """Map a file that exists already to the number that it has in the notes of this process."""
        if event.kind == _NAMED:
            self._files[self._first + event.file] = self._files[self._names[os.fsdecode(event.text)]]
        self._goes_on = event.kind != NOTE

    def _follow_name(self, event: Event) -> None:
        names = os.fsdecode(event.text).split("\0")
        changes: list[Change]
        if event.kind == _NAMED:
            changes = [(names[0], event.file)]
        elif event.kind == _FOLDER_MADE:
            changes = [(names[0], FOLDER)]
        elif event.kind == _RENAMED:
            changes = [(names[0], None), (names[1], self._names[names[0]])]
            if os.path.dirname(names[0]) != os.path.dirname(names[1]):  # each folder has its own change
                new = changes.pop()
                _change(self._names, [new])
                self._changes.append((os.path.dirname(names[1]), [new]))
        else:
            changes = [(names[0], None)]
        _change(self._names, changes)
        self._changes.append((os.path.dirname(names[0]), changes))

    def _settle(self) -> None:
        for file in self._files.values():
            file.sync(0, 1 << 62)
        self._durable = dict(self._names)
        self._changes = []

    def assert_is(self, root: Path) -> None:
        """Assert that no change was missed: the files below a folder are those that the notes describe."""
        found = {str(path.relative_to(root)) for path in root.rglob("*")}
        assert found == self._names.keys() - {""}
        for name, number in self._names.items():
            if number != FOLDER:
                data, file = (root / name).read_bytes(), self._files[number]
                assert len(data) == file.size, name
                for at in range(0, len(data), PAGE):
                    assert data[at : at + PAGE] == file.page(at // PAGE)[: len(data) - at], (name, at)

    # images

    def image(self, chance: random.Random) -> Image:
        """One of the states in which a power cut may leave the disk now."""
        names = dict(self._durable)
        for _, changes in self._lasting(chance):
            _change(names, changes)
        unit = chance.choice([PAGE, SECTOR])
        odds = chance.choice([0.0, 1.0, 0.5, 0.5, 0.1, 0.9])  # the probability that a page has its latest content
        older = chance.random() < 0.5
        image: Image = {}
        for name in sorted(names):
            above = os.path.dirname(name)
            if name and (not above or above in image):
                number = names[name]
                image[name] = None if number == FOLDER else _drawn(self._files[number], chance, unit, odds, older)
        return image

    def latest(self) -> Image:
        """What processes see: the state after a kill."""
        image: Image = {}
        for name in sorted(self._names.keys() - {""}):
            file = self._files[self._names[name]]
            numbers = file.durable.keys() | file.pages.keys()
            is_folder = self._names[name] == FOLDER
            image[name] = None if is_folder else (file.size, {number: file.page(number) for number in numbers})
        return image

    def is_durable(self, name: str) -> bool:
        """Whether a path is on the disk in every image."""
        return name in self._durable

    def worst(self) -> Image:
        """The state after a power cut if only durable bytes and names are on the disk."""
        image: Image = {}
        for name in sorted(self._durable):
            above = os.path.dirname(name)
            if name and (not above or above in image):
                file = self._files[self._durable[name]]
                image[name] = None if self._durable[name] == FOLDER else (file.durable_size, dict(file.durable))
        return image

    def _lasting(self, chance: random.Random) -> list[tuple[str, list[Change]]]:
        """Choose the changes of names that have reached the disk: the first ones, as in a journal, or any of them."""
        changes = self._changes
        how = chance.randrange(4)
        if how == 0:
            return changes
        if how == 1:
            return changes[: chance.randrange(len(changes) + 1)]
        odds = chance.choice([0.0, 0.5, 0.5])
        return [one for one in changes if chance.random() < odds]


def _change(names: dict[str, int], changes: list[Change]) -> None:
    for name, number in changes:
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


def _drawn(file: _File, chance: random.Random, unit: int, odds: float, older: bool) -> tuple[int, dict[int, bytes]]:
    size = file.durable_size
    if file.sizes and chance.random() < (odds or 0.2):
        size = chance.choice(file.sizes) if older else file.sizes[-1]
    pages = dict(file.durable)
    for number, versions in file.pages.items():
        before = file.durable.get(number, _ZEROS)
        out = bytearray(before)
        for at in range(0, PAGE, unit):
            if chance.random() < odds:
                data = chance.choice(versions) if older else versions[-1]
                out[at : at + unit] = data[at : at + unit]
        pages[number] = bytes(out)
    return size, pages


def lay(image: Image, root: Path) -> None:
    """Make a folder hold exactly this image."""
    shutil.rmtree(root, ignore_errors=True)
    os.mkdir(root)
    for name, what in image.items():
        path = os.path.join(root, name)
        if what is None:
            os.mkdir(path)
            continue
        size, pages = what
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(fd, size)
        for number, data in pages.items():
            if number * PAGE < size and data != _ZEROS:
                os.pwrite(fd, data[: size - number * PAGE], number * PAGE)
        os.close(fd)
