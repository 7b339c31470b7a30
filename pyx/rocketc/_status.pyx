# cython: language_level=3
"""Result codes, and the only way from them to Python exceptions."""
import errno
import os

from libc.stdint cimport int64_t

from rocketc.c.status cimport (
    RC_BAD_ARGUMENT, RC_BAD_BLANK, RC_BAD_BODY_CRC, RC_BAD_BODY_LENGTH, RC_BAD_CHAIN, RC_BAD_COMPRESSION,
    RC_BAD_INNER_BATCH, RC_BAD_LENGTH, RC_BAD_MAGIC, RC_BAD_PHYSICAL_OFFSET, RC_BAD_PROPERTIES_LENGTH, RC_BAD_PROPERTY,
    RC_BAD_PROPERTY_CRC, RC_BAD_SIZE, RC_BAD_TOPIC_LENGTH, RC_BAD_UNIT, RC_FILE_CUT, RC_MISSING_PROPERTY_CRC,
    RC_LOCK_LOST, RC_NO_ROOM, RC_OK, RC_PROPERTIES_TOO_LONG, RC_TOO_LARGE, RC_TOPIC_TOO_LONG, RC_TRUNCATED, RC_ZEROED,
)

from rocketc.errors import (
    FILE_TEXTS, CorruptRecordError, IllegalMessageError, RocketcError, StoreFullError, StoreIOError, StoreLockedError,
)

_REASONS = {
    RC_BAD_SIZE: "bad_size",
    RC_BAD_MAGIC: "bad_magic",
    RC_TRUNCATED: "truncated",
    RC_BAD_BODY_LENGTH: "bad_body_length",
    RC_BAD_TOPIC_LENGTH: "bad_topic_length",
    RC_BAD_PROPERTIES_LENGTH: "bad_properties_length",
    RC_BAD_LENGTH: "bad_length",
    RC_BAD_BODY_CRC: "bad_body_crc",
    RC_MISSING_PROPERTY_CRC: "missing_property_crc",
    RC_BAD_PROPERTY_CRC: "bad_property_crc",
    RC_BAD_PHYSICAL_OFFSET: "bad_physical_offset",
    RC_BAD_PROPERTY: "bad_property",
    RC_BAD_COMPRESSION: "bad_compression",
    RC_TOO_LARGE: "too_large",
    RC_BAD_INNER_BATCH: "bad_inner_batch",
    RC_ZEROED: "zeroed",
    RC_BAD_BLANK: "bad_blank",
    RC_FILE_CUT: "file_cut",
    RC_BAD_CHAIN: "bad_chain",
    RC_BAD_UNIT: "bad_unit",
}

_ADVICE = {
    errno.ENOSPC: "free some space, or move the store to another disk",
    errno.EDQUOT: "free some space, or move the store to another disk",
    errno.ENOMEM: "raise the limit of maps (sysctl vm.max_map_count) or of addresses (ulimit -v), or add memory",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}

_RAISES = {
    RC_NO_ROOM: (ValueError, "the destination is too small"),
    RC_BAD_ARGUMENT: (IllegalMessageError, "an argument does not fit its field"),
    RC_PROPERTIES_TOO_LONG: (IllegalMessageError, "the encoded properties are longer than 32767 bytes"),
    RC_TOPIC_TOO_LONG: (IllegalMessageError, "the topic is longer than its length field allows"),
}


cdef str reason_of(int rc):
    """Return the name of a fault of a record or a file. The meaning of a name never changes."""
    return _REASONS[rc]


cdef object error_of(int rc, object path, int64_t offset=-1, str advice=""):
    """Return the exception for a result code: what is wrong, where, and what to do.

    path    of the file; None: the error does not concern a file, or concerns a buffer
    offset  physical offset of the damage, or position in an index file; -1: the code does not mean damage
    advice  what to do about damage
    """
    if rc == RC_FILE_CUT:
        return StoreIOError(errno.EIO, "the file became shorter, or unreadable, while it was mapped", path)
    if rc == RC_LOCK_LOST:
        return StoreLockedError(f"{path} is gone or was replaced, so another process may write this store")
    if rc > 0:
        text = FILE_TEXTS.get(rc) or (f"{os.strerror(rc)}: {_ADVICE[rc]}" if rc in _ADVICE else os.strerror(rc))
        return (StoreFullError if rc in (errno.ENOSPC, errno.EDQUOT) else StoreIOError)(rc, text, path)
    if offset >= 0:
        return CorruptRecordError(path, offset, _REASONS[rc], advice)
    kind, text = _RAISES.get(rc, (RocketcError, f"result code {rc}"))
    return kind(text)


cdef int check(int rc) except -1 nogil:
    """Return 0 if rc is RC_OK; otherwise take the GIL and raise its exception, which does not name a file."""
    if rc == RC_OK:
        return 0
    with gil:
        raise MemoryError if rc == errno.ENOMEM else error_of(rc, None)


cdef int check_file(int rc, object path) except -1:
    """Return 0 if rc is RC_OK; otherwise raise its exception, which names the file if the error concerns one."""
    if rc != RC_OK:
        raise error_of(rc, path)
    return 0
