"""Where in a store's log to look, by its consume queues and its index; the log itself always has the last word."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rocketc._consume_queues import ConsumeQueues
from rocketc._key_index import KeyIndex
from rocketc._message import Message
from rocketc.cli.lookup import NotThere, at_offset
from rocketc.cli.output import note
from rocketc.cli.selection import Selection
from rocketc.config import StoreConfig
from rocketc.errors import RocketcError
from rocketc.paths import base_of, resolve
from rocketc.scan import Scan
from rocketc.verify import root_of
from rocketc.verify_derived import sizes_found


def place_of(paths: Sequence[str], topic: str, queue_id: int, offset: int) -> int | None:
    """Physical offset of the record with a queue offset, if the store's consume queue tells, and the log agrees.

    None: there is no such queue, or it is one of inner batches; it does not have the message, or says what is not true.
    """
    root = root_of(list(paths))
    folder = os.path.join(root or "", "consumequeue", topic, str(queue_id))
    if root is None or not os.path.isdir(folder):
        return None
    try:
        sizes = [
            os.path.getsize(os.path.join(folder, name))
            for name in sorted(os.listdir(folder))
            if base_of(name) is not None
        ]
        queues = ConsumeQueues(root, sizes[0] if sizes else 20, read_only=True)
        units = queues.units(topic, queue_id, offset, 1)  # only this queue's files are looked at
        queues.close()
        if len(units) != 1 or units[0][4] != offset:
            return None
        at = units[0][1]
        found = at_offset(paths, at)
    except (RocketcError, NotThere, OSError, ValueError):
        return None
    there = any((m.topic, m.queue_id, m.queue_offset) == (topic, queue_id, offset) for m in found)
    return at if there else None


class ByKey:
    """Messages of a topic that have a key, or a unique id, found through a store's index.

    texts  the key in each of its forms
    scans  what had to be scanned: parts of the log that the index says nothing of
    """

    def __init__(self, selection: Selection, topic: str, texts: Sequence[str]) -> None:
        self._selection = selection
        self._topic = topic
        self._texts = texts
        self.scans: list[Scan] = []

    def find(self) -> list[Message] | None:
        """All of them in the order of the log; None if there is no index, or it can't be trusted, which is told."""
        root = root_of(list(self._selection.paths))
        if root is None or not os.path.isdir(os.path.join(root, "index")):
            return None
        if not os.path.isdir(os.path.join(root, "consumequeue", self._topic)):
            return None  # it may be one of inner batches: the index does not know the keys of the messages in them
        if os.path.isdir(os.path.join(root, "batchconsumequeue", self._topic)):
            return None
        sizes = sizes_found(root, StoreConfig())
        try:
            index = KeyIndex(os.path.join(root, "index"), sizes.max_hash_slot_num, sizes.max_index_num, read_only=True)
            try:
                amiss = index.load()
                if amiss:
                    note(f"the index is damaged, so the log is searched: {amiss[0]}")
                    return None
                return self._find(index)
            finally:
                index.close()
        except RocketcError as error:
            note(f"the index is damaged, so the log is searched: {error}")
            return None
        except NotThere:
            return None  # it knows of a record that can't be read: the scan tells why

    def _find(self, index: KeyIndex) -> list[Message] | None:
        headers = [header for _, header in index.headers() if header.index_count > 1]
        files = [file for log in resolve(list(self._selection.paths)) for file in log.files]
        if not headers or not files:
            return None
        start = files[0].origin
        places = {at for text in self._texts for at in index.offsets(self._topic, text) if at >= start}
        found = [m for at in places for m in at_offset(self._selection.paths, at) if self._fits(m)]
        known = {m.phy_offset for m in found}
        for first, behind in _between([(header.begin_phy_offset, header.end_phy_offset) for header in headers], start):
            part = self._selection.scan(start=first, stop=behind)
            self.scans.append(part)
            found += [m for m in part if m.phy_offset not in known]
            known |= {m.phy_offset for m in found}
        return sorted(found, key=lambda m: (m.phy_offset, m.queue_offset))

    def _fits(self, m: Message) -> bool:
        """The index goes by hashes."""
        where, keys = self._selection.options["where"], self._selection.options["keys"]
        named = {*m.properties.get("KEYS", "").split(" "), m.properties.get("UNIQ_KEY")}
        return m.topic == self._topic and bool(named & set(keys)) and (where is None or bool(where(m)))


def _between(ranges: Sequence[tuple[int, int]], start: int) -> Iterator[tuple[int, int | None]]:
    """The physical offsets that files of the index, each with its first and last record, say nothing of."""
    at = start
    for first, last in ranges:
        if first > at:
            yield at, first
        at = max(at, last)
    yield at, None  # the last record is not known to have all its keys
