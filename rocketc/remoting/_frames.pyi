"""Frames of the remoting protocol, cut out of a stream of bytes."""

from typing import final

@final
class FrameDecoder:
    @property
    def is_corrupt(self) -> bool: ...
    @property
    def waiting(self) -> int: ...
    def receive(self, data: bytes | bytearray | memoryview) -> list[tuple[int, bytes, bytes]]: ...
