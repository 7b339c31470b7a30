"""Units of the three kinds of consume queue files, decoded from blocks of bytes."""

from typing_extensions import Buffer

PRE_BLANK: str
EXT_MORE: str
EXT_END: str
EXT_UNUSED: str

def decode_units(data: Buffer, first: int = 0) -> list[tuple[int, int, int, int, str | None]]: ...
def decode_batch_units(
    data: Buffer, first: int = 0
) -> list[tuple[int, int, int, int, int, int, int, int, int, str | None]]: ...
def decode_ext_units(data: Buffer, pos: int = 0) -> tuple[list[tuple[int, int, int, int, bytes]], int, str]: ...
