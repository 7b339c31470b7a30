"""Frames of the remoting protocol, cut out of a stream of bytes."""

from typing import final

from typing_extensions import Self

@final
class FrameDecoder:
    def __new__(cls, header_most: int = ...) -> Self: ...
    @property
    def is_corrupt(self) -> bool: ...
    @property
    def waiting(self) -> int: ...
    def receive(self, data: bytes | bytearray | memoryview) -> list[tuple[int, bytes, bytes]]: ...
