"""Tables of config/, broker.conf and message ids: any text, and bytes that are not text."""

from __future__ import annotations

import io
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

from support import oracle

from rocketc.cli import decode_id
from rocketc.config import StoreConfig, properties
from rocketc.errors import ConfigTableError, SqlError
from rocketc.format import ids
from rocketc.read.sql import compile_sql
from rocketc.tables import fastjson
from rocketc.tables.deleted_topics import DeletedTopics
from rocketc.tables.fastjson import parse, to_bytes
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.table_file import read_table
from rocketc.tables.topics import Topics

SQL_END = b"\0PROPERTIES\0"  # before the properties
BAK = b"\0BAK\0"  # before an earlier content of a table


def table(data: bytes, folder: Path) -> None:
    """A table of config/, and its earlier content after BAK: the parsers agree, and a table is written as read."""
    raw, has_bak, before = data.partition(BAK)
    value = _parsed(raw)
    _check_parsers(raw, value)
    if value is not None:
        for compact in (False, True):
            assert parse(to_bytes(value[0], compact=compact)) == value[0]
    (folder / "config").mkdir()
    old = _parsed(before) if has_bak else None
    wanted = next((one[0] for one in (value, old) if one is not None and isinstance(one[0], dict)), None)
    for kind in (Topics, SubscriptionGroups, ConsumerOffsets, DelayOffsets, DeletedTopics):
        path = folder / "config" / kind.NAME
        path.write_bytes(raw)
        if has_bak:
            Path(f"{path}.bak").write_bytes(before)
        try:
            assert read_table(path).data == wanted
        except ConfigTableError as error:
            assert wanted is None and str(path) in str(error)
        _keeps(kind, folder)


def _parsed(raw: bytes) -> tuple[Any] | None:
    try:
        return (parse(raw),)
    except ValueError as error:
        assert str(error).startswith("line "), error
        return None


def _check_parsers(raw: bytes, value: tuple[Any] | None) -> None:
    """Assert that the fast parser, the slow one and Python's agree, as far as they accept the input."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        assert value is None
        return
    slow = None
    try:
        slow = (fastjson._Parser(text).parse(),)
    except ValueError:
        pass
    assert slow == value
    try:
        python = json.loads(text, parse_constant=fastjson._refuse, parse_float=fastjson._finite)
        levels = _depth(python)
    except (ValueError, RecursionError):
        return
    if levels <= fastjson.DEEPEST and (value is not None or len(text) < 400):
        assert value == (python,)


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0)


def _keeps(kind: Any, folder: Path) -> None:
    """Whatever a table holds, it accepts one more entry and keeps the others."""
    one = kind(folder)
    before = _entries(one)
    assert before == _entries(kind(folder))
    if isinstance(one, Topics):
        one.create("fuzz", queues=3)
        more = {"fuzz": one["fuzz"]}
    elif isinstance(one, SubscriptionGroups):
        one.create(SubscriptionGroupConfig("fuzz"))
        more = {"fuzz": one["fuzz"]}
    elif isinstance(one, ConsumerOffsets):
        one.commit("fuzz", "fuzz", 3, 5)
        more = {("fuzz", "fuzz", 3): 5}
    elif isinstance(one, DelayOffsets):
        one.commit(3, 5)
        more = {3: 5}
    else:
        one.add(["fuzz"], 5)
        more = {"fuzz": 5}
    one.persist()
    assert _entries(kind(folder)) == {**before, **more}


def _entries(one: Any) -> dict[Any, Any]:
    if isinstance(one, ConsumerOffsets):
        return {entry[:-1]: entry[-1] for entry in one.items()}
    return dict(one.ends if isinstance(one, DeletedTopics) else one.items())


def conf(data: bytes, folder: Path) -> None:
    """A broker.conf: pairs written with escapes are read back unchanged, and its settings are within their limits."""
    path = folder / "broker.conf"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = StoreConfig.from_properties(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            assert StoreConfig.of(config=config) == config == StoreConfig.from_properties(path)
            assert all(part for part in config.commit_log_paths("/store") + config.read_only_paths)
            assert len(config.delete_hours) <= 24
    try:
        pairs = list(properties(data.decode("iso-8859-1")))
    except ValueError:
        return
    assert list(properties("\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in pairs))) == pairs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            StoreConfig.from_properties(io.StringIO(data.decode("utf-8", "replace")))
        except ValueError:
            pass


def _escaped(text: str) -> str:
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i] << 8 | raw[i + 1]:04x}" for i in range(0, len(raw), 2))


def message_id(data: bytes, folder: Path) -> None:
    """Ids, one a line, as `rocketc decode-id -` reads them: ValueError if invalid, or encoded again unchanged."""
    for line in data.split(b"\n")[:20]:
        text = line.strip().decode("utf-8", "backslashreplace")
        try:
            offset, unique = ids.decode_offset_id(text), ids.decode_unique_id(text)
        except ValueError as error:
            assert "is not a message id" in str(error)
            continue
        assert offset.encode() == unique.encode() == text.upper()
        assert ids.decode_offset_id(offset.encode()) == offset
        told = decode_id._decode(text, None, decode_id.FILE_SIZE)
        assert json.loads(json.dumps(told)) == told
        assert all(decode_id._lines(told, False))
        for year, month in ((2024, 2), (9999, 12), (1, 1)):
            try:
                assert (unique.born(year, month).year, unique.born(year, month).month) == (year, month)
            except ValueError:
                pass


def sql(data: bytes, folder: Path) -> None:
    """An SQL92 filter and the properties of a message: refused with a position, or the same answer in each way."""
    raw, _, properties = data.partition(SQL_END)
    text = raw.decode("utf-8", "surrogateescape")
    try:
        compiled = compile_sql(text)
    except SqlError as error:
        assert 0 <= error.position <= len(text) and str(error).startswith("SQL filter")
        return
    assert text.rstrip(" \t\n\r\f").endswith(compiled.ignored)
    found = compiled.verdict(properties)
    assert compiled.matches(properties) == (found == "true")
    read = text[: text.rindex(compiled.ignored)] if compiled.ignored else text
    for other in (pickle.loads(pickle.dumps(compiled)), compile_sql(f"({read} )") if len(read) < 500 else compiled):
        assert other.verdict(properties) == found
    try:
        pairs = oracle.decode_properties(properties.decode().encode())
    except UnicodeDecodeError:
        return
    assert compiled.verdict(oracle.encode_properties(pairs)) == found
