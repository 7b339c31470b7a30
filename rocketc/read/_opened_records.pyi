"""The messages of one record: its body decompressed, its inner batch opened; and those of the answer to a pull."""

from rocketc.errors import CorruptRecordError
from rocketc.read._message import Message

class LargeBodies(Exception): ...

def pulled_messages(
    body: bytes,
    first: int = ...,
    retry_topic: bytes = b"",
    broker: str | None = None,
    *,
    plain_bytes: int | None = None,
) -> tuple[list[Message], list[CorruptRecordError], int]: ...
