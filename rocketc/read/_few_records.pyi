"""Messages of a short buffer at once: the short way of decode(), for buffers that hold nothing but whole records."""

from typing_extensions import Buffer

from rocketc.read._message import Message

def few_messages(buffer: Buffer, base_offset: int | None, file: str | None) -> list[Message] | None: ...
