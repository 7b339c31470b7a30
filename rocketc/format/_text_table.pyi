"""A table from texts to numbers, searched by bytes without the GIL."""

from typing_extensions import Self

class TextTable:
    def __new__(cls) -> Self: ...
