"""Compressed bodies: zlib from the standard library, LZ4 frames and zstd from optional packages, with a size limit."""

from __future__ import annotations

import zlib
from typing import Any

from rocketc._layout import COMPRESSION_LZ4, COMPRESSION_OLD_ZLIB, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from rocketc.errors import MissingCodecError


class BadBody(Exception):
    """A body that can't be decompressed; args[0] is the reason: "bad_compression" or "too_large"."""


def _lz4() -> Any:
    try:
        from lz4.frame import LZ4FrameDecompressor
    except ImportError:
        raise MissingCodecError(
            "a body is compressed with LZ4: pip install 'rocketc[compression]' (package lz4)"
        ) from None
    return LZ4FrameDecompressor()


def _zstd() -> Any:
    try:
        from compression.zstd import ZstdDecompressor  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from backports.zstd import ZstdDecompressor
        except ImportError:
            raise MissingCodecError(
                "a body is compressed with zstd: pip install 'rocketc[compression]' (package backports.zstd)"
            ) from None
    return ZstdDecompressor()


# By the compression type of sysFlag; producers before 4.9.4 leave it 0.
_DECOMPRESSORS = {
    COMPRESSION_OLD_ZLIB: zlib.decompressobj,
    COMPRESSION_LZ4: _lz4,
    COMPRESSION_ZSTD: _zstd,
    COMPRESSION_ZLIB: zlib.decompressobj,
}


def decompress(kind: int, body: bytes, limit: int) -> bytes:
    """Decompress a stored body.

    kind   compression type of sysFlag: 0 and 3 zlib, 1 LZ4 frame, 2 zstd
    limit  bytes; a longer result raises BadBody("too_large"); at most limit + 1 bytes are decompressed
    Raises BadBody("bad_compression") for other data or data without an end, MissingCodecError if the library is
    not installed.

    >>> decompress(3, zlib.compress(b"hello"), limit=5)
    b'hello'
    """
    make = _DECOMPRESSORS.get(kind)
    if make is None:
        raise BadBody("bad_compression")
    stream = make()
    try:
        plain = stream.decompress(body, limit + 1)
    except Exception as error:  # each library has its own exceptions
        raise BadBody("bad_compression") from error
    if len(plain) > limit:
        raise BadBody("too_large")
    if not stream.eof:
        raise BadBody("bad_compression")
    return bytes(plain)
