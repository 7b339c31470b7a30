"""Decode a short buffer at once: the fast path of decode() for buffers with complete valid records only."""

from typing_extensions import Buffer

from rocketc.read._message import Message

def few_messages(buffer: Buffer, base_offset: int | None, file: str | None) -> list[Message] | None: ...
