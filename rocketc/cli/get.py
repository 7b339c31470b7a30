"""rocketc get: print one message with all its fields, by physical offset, id or key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import click

from rocketc import _layout as layout
from rocketc.cli.arguments import Number, choose_printer, prints_messages
from rocketc.cli.cluster_url import only_cluster
from rocketc.cli.exit_codes import DONE, NOT_FOUND
from rocketc.cli.output import DamageNotes, Out, command, note, progress
from rocketc.cli.security_options import take_security, with_security
from rocketc.cli.selecting import refuse_cluster_options
from rocketc.cli.selection import Selection, paths_argument, topics_option
from rocketc.format.ids import OffsetId, decode_offset_id, decode_unique_id
from rocketc.jobs.lookup import KeyLookup, RecordNotFound, at_offset
from rocketc.read._message import Message
from rocketc.read.regex import limited
from rocketc.read.scan import Scan
from rocketc.read.scan_report import ScanReport
from rocketc.report.messages import BODY_FORMS, Printer, uses_body
from rocketc.report.text import in_words, many, show_size, show_time, visible

Topics = tuple["str | re.Pattern[str]", ...]

_DUMPED = 256  # bytes that are shown of a body that is not text
_COMPRESSIONS = {
    layout.COMPRESSION_OLD_ZLIB: "zlib",
    layout.COMPRESSION_LZ4: "LZ4",
    layout.COMPRESSION_ZSTD: "zstd",
    layout.COMPRESSION_ZLIB: "zlib",
}
_TRANSACTIONS = {
    layout.FLAG_PREPARED: "prepared transaction",
    layout.FLAG_COMMIT: "committed transaction",
    layout.FLAG_ROLLBACK: "rolled back transaction",
}
_FLAGS = {
    layout.FLAG_MULTI_TAGS: "several tags",
    layout.FLAG_BORN_HOST_V6: "IPv6 born host",
    layout.FLAG_STORE_HOST_V6: "IPv6 store host",
    layout.FLAG_NEED_UNWRAP: "to unwrap",
    layout.FLAG_INNER_BATCH: "inner batch",
}


@command(
    "rocketc get /data/store --phy-offset 361996",
    "rocketc get /data/store --key 10086 -t orders --json | jq .body",
    "rocketc get rocketmq://127.0.0.1:9876/orders --key 10086",
)
@paths_argument
@click.option(
    "--phy-offset",
    type=Number(0),
    metavar="OFFSET",
    help="Find the message whose record begins at this physical offset (a byte of the log). Reads only that file.",
)
@click.option(
    "--id",
    "ident",
    metavar="ID",
    help="Find the message with this offset id (msgId), which holds its position; or search for the messages with this "
    "unique id, which a client made.",
)
@click.option(
    "--key",
    metavar="KEY",
    help="Find the messages with this key or unique id. With -t, the index of the store finds them; without -t or an "
    "index, the log is searched.",
)
@topics_option("Search only this topic")
@prints_messages("see `rocketc cat -h`", "Form of the body, as in `cat`. Of a body that is not text, its first bytes.")
@with_security
def get(
    path: tuple[str, ...], phy_offset: int | None, ident: str | None, key: str | None, topic: Topics, count: int | None,
    as_json: bool, spec: str | None, body: str, **given: Any,
) -> int:  # fmt: skip
    """Print a message of a store, a commit log folder, or log files, with all its fields.

    Give exactly one of --phy-offset, --id and --key. For an inner batch (one record with several messages),
    --phy-offset and an offset id print all its messages. The exit code is 1 if no message is found.

    PATH can also be a topic of a running cluster, rocketmq://HOST:PORT/TOPIC. Its brokers find ids and keys.
    """
    if (phy_offset is not None) + (ident is not None) + (key is not None) != 1:
        raise click.UsageError("give one of --phy-offset, --id and --key")
    if topic and phy_offset is not None:
        raise click.UsageError("-t can't be used with --phy-offset, only with --id and --key")
    if ident == "" or key == "":
        raise click.UsageError("the id or key is empty")
    url = only_cluster(path)
    if url is not None and phy_offset is not None:
        raise click.UsageError("--phy-offset is for files of a log: each broker of a cluster has a log of its own")
    if url is None:
        refuse_cluster_options(given)
    with Out() as out, DamageNotes(out):
        show = choose_printer(spec, as_json, body, out, full_printer)
        decompress = uses_body(spec, body)
        if url is not None:
            from rocketc.cli.get_cluster import get_of_cluster  # late: it needs the client

            offset_id = None if key is not None else _kinds(ident or "")[0]
            security, text = take_security(given), key or ident or ""
            return get_of_cluster(url, security, topic, offset_id, text, key is not None, count, decompress, show, out)
        try:
            if phy_offset is not None:
                return _print(islice(at_offset(path, phy_offset, progress, decompress), count), show, out)
            if key is not None:
                return _Search(path, topic, count, key, "key", decompress).run(show, out)
            return _by_id(path, ident or "", topic, count, decompress, show, out)
        except RecordNotFound as error:
            note("; ".join(text + in_words(reason) for text, reason in error.causes))
            return NOT_FOUND


def _print(messages: Iterable[Message], show: Printer, out: Out) -> int:
    for message in messages:
        out.write(show(message))
    return DONE


def _by_id(
    path: Sequence[str], text: str, topics: Topics, count: int | None, decompress: bool, show: Printer, out: Out
) -> int:
    """Read the message of an offset id, or search for a text that may be a unique id."""
    offset_id, may_be_unique = _kinds(text)
    if offset_id is not None:
        try:
            return _print(islice(_with_id(path, offset_id, topics, decompress), count), show, out)
        except RecordNotFound:
            if not may_be_unique:
                raise
    return _Search(path, topics, count, text, "unique id", decompress).run(show, out)


def _is_id(text: str) -> bool:
    try:
        decode_unique_id(text)
    except ValueError:
        return False
    return True


def _kinds(text: str) -> tuple[OffsetId | None, bool]:
    """Return the text as an offset id, or None; and whether it may be a unique id (clients can make their own)."""
    if not _is_id(text):
        return None, True
    offset_id = decode_offset_id(text)
    if not offset_id.doubts():
        return offset_id, False
    if not decode_unique_id(text).doubts() or offset_id.phy_offset < 0:
        return None, True
    return offset_id, True


def _with_id(path: Sequence[str], wanted: OffsetId, topics: Topics, decompress: bool) -> list[Message]:
    """Return the message at the offset of an id. Raises RecordNotFound if another broker stored that message."""
    there = at_offset(path, wanted.phy_offset, progress, decompress)
    found = [message for message in there if message.msg_id == wanted.encode()]
    if not found:
        text = (
            f"the id is of a message that {wanted.store_host} stored; the message at its physical offset "
            f"{wanted.phy_offset} was stored by {there[0].store_host}: use --phy-offset {wanted.phy_offset} to see it"
        )
        raise RecordNotFound((text, ""))
    if topics and not any(_is_of(found[0].topic, topic) for topic in topics):
        raise RecordNotFound((f"the message with this id has another topic: {found[0].topic}", ""))
    return found


def _is_of(name: str, topic: str | re.Pattern[str]) -> bool:
    return name == topic if isinstance(topic, str) else limited(topic.fullmatch, name) is not None


class _Search:
    """The messages with a key or a unique id, in the order of the log."""

    def __init__(
        self, path: Sequence[str], topics: Topics, count: int | None, text: str, what: str, decompress: bool
    ) -> None:
        texts, where = [text], None
        if what == "unique id":
            texts = [text, text.upper()]  # as given, and in upper case as clients write it
            where = lambda m: m.properties.get(layout.PROPERTY_UNIQUE_KEY) in texts  # noqa: E731
        options: dict[str, Any] = {
            "topics": topics or None, "keys": texts, "where": where, "errors": "report", "start": None, "stop": None,
            "decompress": decompress, "unreadable": "skip",
        }  # fmt: skip
        self._selection = Selection(tuple(path), options)
        self._count = count
        self._by_key = None
        if len(topics) == 1 and isinstance(topics[0], str):
            self._by_key = KeyLookup(
                path, topics[0], texts, where=where, scan=self._selection.scan, warn=note, decompress=decompress
            )
        self._what = f"no message{' of these topics' if topics else ''} has the {what} {text!r}"

    def run(self, show: Printer, out: Out) -> int:
        found = self._by_key.find() if self._by_key is not None else None
        if self._by_key is None or found is None:
            return self._scan(show, out)
        _print(found[: self._count], show, out)
        report = ScanReport.total(scan.report for scan in self._by_key.scans)
        code = self._selection.conclude(report, len(found), complete=False)
        if not found:
            if not self._selection.note_missing_topics(0):
                note(f"{self._what}: not in the index, nor in {show_size(report.bytes)} that the index does not cover")
            return NOT_FOUND
        return code

    def _scan(self, show: Printer, out: Out) -> int:
        scan = self._selection.scan()
        parts = scan.by_file()
        number = 0
        with ExitStack() as bar:
            update = bar.enter_context(progress("searching", scan.bytes))
            for message in islice(_messages(parts, update), self._count):
                if out.is_terminal and number == 0:
                    bar.close()  # the bar would be mixed with the messages
                out.write(show(message))
                number += 1
        report = ScanReport.total(part.report for part in parts)
        code = self._selection.conclude(report, number, complete=False)
        if number == 0:
            if not self._selection.note_missing_topics(0):
                note(f"{self._what}: searched {show_size(report.bytes)} in {many(report.files, 'file')}")
            return NOT_FOUND
        return code


def _messages(parts: list[Scan], update: Callable[[int], None]) -> Iterator[Message]:
    done = 0
    for part in parts:
        for message in part:
            update(done + part.report.bytes)
            yield message
        done += part.bytes
        update(done)


# ---- in full


def full_printer(body: str, color: bool) -> Printer:
    """Return the printer for all fields, one per line, then properties and body; a blank line between messages.

    >>> import rocketc
    >>> [m] = rocketc.decode(rocketc.encode("orders", b"hi", queue_offset=7))
    >>> full_printer("text", False)(m).decode().splitlines()[:2]
    ['topic             orders', 'queue             0, offset 7']
    """
    bold, dim, plain = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if color else ("", "", "")
    first = True

    def show(m: Message) -> bytes:
        nonlocal first
        lines = [] if first else [""]
        first = False
        lines += [f"{dim}{name:18}{plain}{visible(text)}" for name, text in _fields(m)]
        if m.properties:
            lines.append(f"{bold}properties{plain}")
            width = min(max(map(len, m.properties)), 28)
            lines += [f"  {dim}{visible(name):{width}}{plain}  {visible(v)}" for name, v in m.properties.items()]
        if body != "none":
            lines.append(f"{bold}body{plain}, {many(len(m.body), 'byte')}")
            lines += _body(m.body, body)
        return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")

    return show


def _fields(m: Message) -> Iterator[tuple[str, str]]:
    yield "topic", m.topic
    yield "queue", f"{m.queue_id}, offset {m.queue_offset}"
    yield "message id", m.msg_id
    yield "physical offset", str(m.phy_offset)
    yield "stored", f"{show_time(m.store_timestamp)} ({m.store_timestamp}) by {m.store_host}"
    yield "born", f"{show_time(m.born_timestamp)} ({m.born_timestamp}) at {m.born_host}"
    yield "keys", m.keys if m.keys is not None else "-"
    yield "tags", m.tags if m.tags is not None else "-"
    yield "flag", str(m.flag)
    yield "system flag", _sys_flag(m.sys_flag)
    yield "reconsume times", str(m.reconsume_times)
    yield "prepared offset", str(m.prepared_transaction_offset)
    yield "body CRC", f"{m.body_crc} (0x{m.body_crc & 0xFFFFFFFF:08X})"
    yield "record", f"{many(m.store_size, 'byte')}, V{m.version}"
    if m.file is not None:
        yield "file", m.file


def _sys_flag(flag: int) -> str:
    words = []
    if flag & layout.FLAG_COMPRESSED:
        kind = (flag & layout.FLAG_COMPRESSION_MASK) >> layout.FLAG_COMPRESSION_SHIFT
        words.append(f"compressed with {_COMPRESSIONS.get(kind, 'an unknown method')}")
    if transaction := flag & layout.FLAG_TRANSACTION_MASK:
        words.append(_TRANSACTIONS[transaction])
    words += [word for bit, word in _FLAGS.items() if flag & bit]
    return f"0x{flag & 0xFFFFFFFF:X}" + (f" ({', '.join(words)})" if words else "")


def _body(body: bytes, form: str) -> list[str]:
    """The lines of a body, indented so that they can't be mistaken for fields."""
    if form != "text":
        return ["  " + visible(line) for line in BODY_FORMS[form][0](body).decode("utf-8").split("\n")]
    try:
        return ["  " + visible(line) for line in body.decode().split("\n")] if body else []
    except UnicodeDecodeError:
        pass
    lines = []
    for at in range(0, min(len(body), _DUMPED), 16):
        part = body[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"  {at:08x}  {part.hex(' '):47}  {text}")
    if len(body) > _DUMPED:
        lines.append(f"  ... {len(body) - _DUMPED} more bytes; use --body hex to see all")
    return lines
