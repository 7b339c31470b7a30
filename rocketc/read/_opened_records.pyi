"""The messages of one record: its body decompressed, its inner batch opened; and those of the answer to a pull."""

from rocketc.errors import CorruptRecordError
from rocketc.read._message import Message

def pulled_messages(
    body: bytes, first: int = ..., retry_topic: bytes = b""
) -> tuple[list[Message], list[CorruptRecordError], int]: ...
