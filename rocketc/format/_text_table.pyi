"""A set of texts with a number each, looked up from bytes without the GIL."""

from typing_extensions import Self

class TextTable:
    def __new__(cls) -> Self: ...
