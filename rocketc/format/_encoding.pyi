"""Message records for Python: encoding, client batches, moving records in the log, hashes and CRC-32."""

from collections.abc import Iterable, Mapping
from typing import Literal

from typing_extensions import Buffer

def encode(
    topic: str,
    body: Buffer = b"",
    *,
    queue_id: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    phy_offset: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: tuple[str, int] = ("127.0.0.1", 0),
    store_timestamp: int = 0,
    store_host: tuple[str, int] = ("127.0.0.1", 0),
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    properties: Mapping[str, str | None] | bytes | None = None,
    version: Literal[1, 2] | None = None,
    property_crc: bool = False,
    trailing_separator: bool = True,
) -> bytes: ...
def encode_blank_record(size: int) -> bytes: ...
def store_timestamp_of(head: Buffer) -> int: ...
def encode_batch(messages: Iterable[tuple[int, Buffer, Mapping[str, str | None] | bytes | None]]) -> bytes: ...
def decode_batch(batch: Buffer) -> list[tuple[int, bytes, bytes]]: ...
def java_hash(text: str) -> int: ...
def crc32_ways() -> list[str]: ...
def crc32_by(way: str, data: Buffer, value: int = 0) -> int: ...
def move_records(data: Buffer, phy_offset: int, room: int) -> tuple[int, str]: ...
