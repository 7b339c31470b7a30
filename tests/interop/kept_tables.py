"""What a broker of RocketMQ keeps of topics, groups and offsets, for tests of tools that must not change it."""

import time

from rocketc.tables.fastjson import parse

FLUSH_MS = 300  # between two writes of the offsets: set flushConsumerOffsetInterval to it
_SECONDS = 1.5  # in which the broker then writes its tables


def tables(store, *, with_empty=False):
    """The tables in config/ by their files' names, but for counters of changes.

    with_empty  also those without entries: a broker writes some of them about ten seconds after its start
    """
    time.sleep(_SECONDS)
    found = {}
    for path in (store / "config").glob("*.json"):
        table = parse(path.read_bytes() or b"{}")
        table.pop("dataVersion", None)
        if with_empty or any(table.values()):
            found[path.name] = table
    return found
