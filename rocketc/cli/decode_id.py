"""rocketc decode-id: show the fields of a message id."""

from __future__ import annotations

import datetime
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from rocketc.cli.arguments import Number
from rocketc.cli.exit_codes import DONE, USAGE
from rocketc.cli.output import Out, command, note
from rocketc.format.ids import OffsetId, UniqueId, decode_offset_id, decode_unique_id

FILE_SIZE = 1 << 30  # RocketMQ's default
_DAY_MS = 24 * 3_600_000


class Month(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A year and a month: 2026-01."""

    name = "month"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", value, re.ASCII) or value.startswith("0000"):
            self.fail(f"{value!r} is not a month such as 2026-01", param, ctx)
        return int(value[:4]), int(value[5:])


@command("rocketc decode-id C0A8010A00002A9F0000000000001000", "rocketc decode-id - --json < ids.txt", name="decode-id")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object per id.")
@click.option("--month", type=Month(), metavar="YYYY-MM", help="The month in which the unique ids were made.")
@click.option(
    "--file-size",
    type=Number(1),
    default=FILE_SIZE,
    metavar="BYTES",
    help="Size of the broker's commit log files (mappedFileSizeCommitLog). Default: 1 GiB.",
)
def decode_id(ids: tuple[str, ...], as_json: bool, month: tuple[int, int] | None, file_size: int) -> int:
    """Show the fields of message ids. `-` reads ids from stdin, one per line.

    There are two kinds of ids. Both have 32 hex digits, or 56 with an IPv6 address. The offset id (msgId in a store)
    holds where the message is stored: the address of the broker and the physical offset. The unique id (UNIQ_KEY) holds
    which client made it: address, process, time within its month, counter. The kind of an id is found from its content.

    The exit code is 2 if one of the arguments is not an id.
    """
    wrong = False
    with Out() as out:
        for n, text in enumerate(_all(ids)):
            try:
                decoded = _decode(text, month, file_size)
            except ValueError as error:
                out.flush()
                note(str(error))
                wrong = True
                continue
            if as_json:
                out.write((json.dumps(decoded) + "\n").encode())
            else:
                out.write(("\n" * (n > 0) + "\n".join(_lines(decoded, out.has_color)) + "\n").encode())
    return USAGE if wrong else DONE


def _all(ids: Iterable[str]) -> Iterator[str]:
    """The ids of a command line. A text may hold several with commas: a producer gets the ids of a batch so."""
    for text in ids:
        if text == "-":
            for line in sys.stdin.buffer if sys.stdin is not None else ():
                if line := line.strip():
                    yield from line.decode("utf-8", "backslashreplace").split(",")
        else:
            yield from text.split(",")


def _decode(text: str, month: tuple[int, int] | None, file_size: int) -> dict[str, Any]:
    """Return the JSON object of an id. Raises ValueError if the text is not an id."""
    offset, unique = decode_offset_id(text), decode_unique_id(text)
    doubts = offset.doubts(), unique.doubts()
    kind = "unclear" if bool(doubts[0]) == bool(doubts[1]) else "unique" if doubts[0] else "offset"
    decoded: dict[str, Any] = {"id": text.upper(), "kind": kind}
    if kind != "unique":
        decoded["offsetId"] = _offset_fields(offset, file_size)
    if kind != "offset":
        decoded["uniqueId"] = _unique_fields(unique, month)
    if kind == "unclear":
        decoded["offsetId"]["doubts"], decoded["uniqueId"]["doubts"] = doubts
    return decoded


def _offset_fields(found: OffsetId, file_size: int) -> dict[str, Any]:
    out = {
        "storeHost": found.store_host, "address": found.host, "port": found.port, "physicalOffset": found.phy_offset
    }  # fmt: skip
    if found.phy_offset >= 0:
        position = found.phy_offset % file_size
        out |= {"file": f"{found.phy_offset - position:020d}", "position": position, "fileSize": file_size}
    return out


def _unique_fields(found: UniqueId, month: tuple[int, int] | None) -> dict[str, Any]:
    """Return the JSON object of a unique id. Its times are the client's local times, in an unknown time zone."""
    day, ms = divmod(found.month_ms, _DAY_MS)
    when = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=ms)
    out: dict[str, Any] = {
        "address": found.ip, "processId": found.pid, "classLoaderHash": found.class_loader_hash,
        "counter": found.counter, "monthMs": found.month_ms, "day": day + 1,
        "time": when.time().isoformat("milliseconds"),
    }  # fmt: skip
    if month is not None:
        try:
            out["born"] = _local(found.born(*month))
        except ValueError as error:
            raise ValueError(f"{found.encode()}: made on day {day + 1} of a month, and {error}") from None
    else:
        now = datetime.datetime.fromtimestamp(time.time(), datetime.timezone(datetime.timedelta(hours=14)))
        born = found.born_near(now)  # `now` is in UTC+14, the time zone that is ahead of all others
        if born is not None:
            out["bornAtTheLatest"] = _local(born)
    return out


def _local(when: datetime.datetime) -> str:
    return when.replace(tzinfo=None).isoformat(timespec="milliseconds")


def _lines(decoded: dict[str, Any], color: bool) -> Iterator[str]:
    """The lines that are printed without --json."""
    bold, dim, plain = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if color else ("", "", "")
    yield f"{bold}{decoded['id']}{plain}"
    if decoded["kind"] == "unclear":
        yield "  kind unclear: it can be read as both kinds, and both are unlikely"
    for key, rows in (("offsetId", _offset_rows), ("uniqueId", _unique_rows)):
        if key in decoded:
            for name, text in rows(decoded[key]):
                yield f"  {dim}{name:16}{plain}{text}"
            for doubt in decoded[key].get("doubts", ()):
                yield f"  {'':16}but {doubt}"


def _offset_rows(decoded: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "offset id", "where a broker stored the message"
    yield "store host", f"{decoded['storeHost']}{_class_of(decoded['address'])}"
    yield "physical offset", str(decoded["physicalOffset"])
    if "file" in decoded:
        size = "1 GiB" if decoded["fileSize"] == FILE_SIZE else f"{decoded['fileSize']} bytes"
        yield "file", f"{decoded['file']}, byte {decoded['position']}, if files are {size}"


def _unique_rows(decoded: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "unique id", "which client made the message"
    yield "address", f"{decoded['address']}{_class_of(decoded['address'])}"
    yield "process", f"{decoded['processId']} (the low 16 bits of its id)"
    yield "class loader", f"0x{decoded['classLoaderHash'] & 0xFFFFFFFF:08X} (its hash code, if the client is Java)"
    clock = "by the client's clock"
    if "born" in decoded:
        yield "made", f"{decoded['born']}, {clock}"
    else:
        yield "made", f"on day {decoded['day']} of a month at {decoded['time']}, {clock}"
        if "bornAtTheLatest" in decoded:
            yield "", f"at the latest {decoded['bornAtTheLatest']} (see --month)"
    yield "counter", str(decoded["counter"])


def _class_of(address: str) -> str:
    """The class of a special address, in brackets: loopback, private and so on; otherwise nothing."""
    from ipaddress import ip_address

    found = ip_address(address)
    kinds = (
        ("loopback", found.is_loopback), ("unspecified", found.is_unspecified), ("link-local", found.is_link_local),
        ("multicast", found.is_multicast), ("private", found.is_private), ("reserved", found.is_reserved),
    )  # fmt: skip
    return next((f" ({name})" for name, is_it in kinds if is_it), "")
