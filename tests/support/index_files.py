"""Index files as RocketMQ fills them: that of the specification, and others."""

import datetime
import struct
from pathlib import Path

T0 = 1_700_000_000_123

# The index file of the specification: 10 slots, 4 units; k1@0, k1@133 2.5 s later, k2@266.
SPECIFIED = bytes.fromhex(
    "0000018bcfe5687b 0000018bcfe5781a 0000000000000000 000000000000010a 00000002 00000004"
    + "00000000" * 4 + "00000002 00000003" + "00000000" * 4
    + "00" * 20
    + "0029e6a8 0000000000000000 00000000 00000000"
    + "0029e6a8 0000000000000085 00000002 00000001"
    + "0029e6a9 000000000000010a 00000003 00000000"
)  # fmt: skip


def index_bytes(slots, room, entries, begin=T0):
    """An index file as RocketMQ fills it; entries: (key hash, physical offset, seconds)."""
    chains = [0] * slots
    units = bytearray(20 * room)
    for number, (key_hash, phy_offset, seconds) in enumerate(entries, 1):
        slot = key_hash % slots
        struct.pack_into(">iqii", units, 20 * number, key_hash, phy_offset, seconds, chains[slot])
        chains[slot] = number
    ends = (entries[0][1], entries[-1][1]) if entries else (0, 0)
    last = begin + 1000 * entries[-1][2] if entries else begin
    used = sum(chain > 0 for chain in chains)
    header = struct.pack(">qqqqii", begin, last, *ends, used, len(entries) + 1)
    return header + struct.pack(f">{slots}i", *chains) + bytes(units)


def name_time(name):
    """The time from which a file's name was made, in ms."""
    moment = datetime.datetime.strptime(str(name)[:14], "%Y%m%d%H%M%S").astimezone()
    return int(moment.timestamp()) * 1000 + int(str(name)[14:])


def fill(index, count, topic="t", step=100, start=0, time=T0):
    for n in range(start, start + count):
        index.put_keys(topic, n * step, time + n * 1000, keys=f"k{n}")


def found(index, key, topic="t", **fields):
    return list(index.offsets(topic, key, **fields))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
