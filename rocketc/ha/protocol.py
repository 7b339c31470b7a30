"""The bytes of the HA protocol: reports of a slave, transfers of a master. No socket, no store, no clock.

A slave sends 8 bytes: i64, the physical offset up to which it has the log.

A master sends a header of 12 bytes: i64, the physical offset of the first byte; i32, the number of bytes. These bytes
of the log follow. 0 bytes are a heartbeat with the offset that is sent next.

All numbers are big-endian. A transfer may begin and end within a record. It never crosses the end of a log file.
Source: RocketMQ DefaultHAConnection, DefaultHAClient.
"""

from __future__ import annotations

import struct

from rocketc.errors import FrameError

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")
REPORT_BYTES = _REPORT.size
HEADER_BYTES = _HEADER.size
TRANSFER_MOST = (4 << 20) - HEADER_BYTES  # bytes; a RocketMQ slave reads into a buffer of 4 MiB
_ROOM = 64 << 10  # bytes of room for one read, at least


def encode_report(phy_offset: int) -> bytes:
    """Return a report: the slave has the log up to this physical offset.

    >>> encode_report(133).hex()
    '0000000000000085'
    """
    return _REPORT.pack(phy_offset)


def encode_header(phy_offset: int, size: int) -> bytes:
    """Return the header of a transfer of `size` bytes; 0 bytes: a heartbeat.

    >>> encode_header(133, 0).hex()
    '000000000000008500000000'
    """
    return _HEADER.pack(phy_offset, size)


class ReportDecoder:
    """The reports of one slave, from bytes in any cuts.

    >>> reports = ReportDecoder()
    >>> reports.receive(encode_report(1) + encode_report(200)[:5]), reports.receive(encode_report(200)[5:])
    (1, 200)
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes) -> int | None:
        """Return the last whole report, None if no report ends in `data`. Raises FrameError if it is negative."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        if whole == 0:
            return None
        (phy_offset,) = _REPORT.unpack_from(data, whole - REPORT_BYTES)
        if phy_offset < 0:
            raise FrameError(f"a slave reports the physical offset {phy_offset}; it must not be negative")
        return int(phy_offset)


class TransferDecoder:
    """The transfers of one master, read in place: the bytes of the log without the headers, as one block.

    expected  the physical offset that the master must send first; None: any
    capacity  bytes of the buffer at the beginning. It grows if the block is not taken
    most      bytes of the buffer at most

    A transport reads into room(), then calls filled(). The block begins with the first byte that was not taken.

    >>> transfers = TransferDecoder(expected=100)
    >>> data = encode_header(100, 3) + b"abc" + encode_header(103, 2) + b"d"
    >>> transfers.room()[: len(data)] = data
    >>> transfers.filled(len(data))
    >>> transfers.block_offset, bytes(transfers.block)
    (100, b'abcd')
    >>> transfers.take(4)
    >>> transfers.block_offset, bytes(transfers.block)
    (104, b'')
    """

    __slots__ = ("_block_end", "_block_start", "_body", "_buffer", "_end", "_most", "_next", "_scan", "heartbeats")

    def __init__(self, expected: int | None = None, capacity: int = 1 << 20, most: int = 64 << 20) -> None:
        self._buffer = memoryview(bytearray(capacity))
        self._most = most
        self._next = expected  # physical offset of the next byte of the log
        self._body = 0  # bytes of the current transfer that are still to come
        # The buffer: the block in [start, end); what is not parsed, at most a part of a header, in [scan, end).
        self._block_start = self._block_end = self._scan = self._end = 0
        self.heartbeats = 0

    @property
    def next_offset(self) -> int | None:
        """Physical offset of the next byte of the log; None before the first header."""
        return self._next

    @property
    def block(self) -> memoryview:
        """The bytes of the log that were not taken yet. It is valid until the next call of room()."""
        return self._buffer[self._block_start : self._block_end]

    @property
    def block_offset(self) -> int | None:
        """Physical offset of the block's first byte; None before the first header."""
        return None if self._next is None else self._next - (self._block_end - self._block_start)

    def take(self, count: int) -> None:
        """Remove the first `count` bytes of the block."""
        if not 0 <= count <= self._block_end - self._block_start:
            raise ValueError(f"take({count}): the block has {self._block_end - self._block_start} bytes")
        self._block_start += count

    def room(self) -> memoryview:
        """Return where the next bytes go, at least 64 KiB.

        Raises FrameError if the block fills the whole buffer: no record is that long.
        """
        if self._block_start == self._block_end and self._scan == self._end:
            self._block_start = self._block_end = self._scan = self._end = 0
        elif len(self._buffer) - self._end < _ROOM:
            self._compact()
        return self._buffer[self._end :]

    def filled(self, count: int) -> None:
        """Parse the next `count` bytes of room(). Raises FrameError for a header that can't be; so does each call
        after it.
        """
        buffer, scan, end = self._buffer, self._scan, self._end + count
        self._end = end
        while scan < end:
            if self._body > 0:
                part = min(self._body, end - scan)
                if self._block_start == self._block_end:
                    self._block_start = self._block_end = scan
                elif scan > self._block_end:
                    buffer[self._block_end : self._block_end + part] = buffer[scan : scan + part]
                self._block_end += part
                self._body -= part
                self._next += part  # type: ignore[operator]  # a header was read
                scan += part
            elif end - scan < HEADER_BYTES:
                break
            else:
                self._begin(*_HEADER.unpack_from(buffer, scan))
                scan += HEADER_BYTES
            self._scan = scan

    def _begin(self, phy_offset: int, size: int) -> None:
        """Check a header."""
        if not 0 <= size <= TRANSFER_MOST:
            what = f"a master announces {size} bytes at the physical offset {phy_offset}"
            raise FrameError(f"{what}; a transfer has 0 to {TRANSFER_MOST}")
        if phy_offset < 0:
            raise FrameError(f"a master sends the physical offset {phy_offset}; it must not be negative")
        if self._next is not None and phy_offset != self._next:
            raise FrameError(f"a master continues at the physical offset {phy_offset}; {self._next} was expected")
        self._next = phy_offset
        self._body = size
        self.heartbeats += size == 0

    def _compact(self) -> None:
        """Move the block to the start of the buffer, or of a greater one, and what is not parsed after it."""
        block, rest = self._block_end - self._block_start, self._end - self._scan
        buffer = self._buffer
        if len(buffer) - block - rest < _ROOM:
            if len(buffer) >= self._most:
                raise FrameError(f"a record of the master at {self.block_offset} does not end within {block} bytes")
            buffer = memoryview(bytearray(min(2 * len(buffer), self._most)))
        buffer[:block] = self._buffer[self._block_start : self._block_end]
        buffer[block : block + rest] = self._buffer[self._scan : self._end]
        self._buffer, self._block_start, self._block_end = buffer, 0, block
        self._scan, self._end = block, block + rest
