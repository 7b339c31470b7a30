# cython: language_level=3
"""The store checkpoint: the store times up to which the log, the queues and the index are durable."""
import errno
import os
from collections import namedtuple

from libc.errno cimport EINTR, EIO, errno as c_errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset
from posix.unistd cimport pread, pwrite

from rocketc.c.bytes cimport rc_get_i64, rc_put_i64
from rocketc.c.layout cimport (
    RC_CHECKPOINT_BYTES, RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT, RC_CHECKPOINT_INDEX_TIMESTAMP_AT,
    RC_CHECKPOINT_LOGICS_TIMESTAMP_AT, RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT, RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT,
)
from rocketc.c.vm cimport rc_sync_file

from rocketc.files.durable import errors_named, sync_folder
from rocketc.files.regular import open_regular

cdef enum:
    FIELDS = 5
    USED_BYTES = RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT + 8
    HEAD_BYTES = 512            # the first sector: a power cut leaves its old or its new content
    NOTE_BYTES = 24             # of a note: mark, timestamp of the checkpoint, physical offset
    FLUSHED_AT = HEAD_BYTES - NOTE_BYTES    # with physicMsgTimestamp: where the durable part of the log ends
    QUEUED_AT = FLUSHED_AT - NOTE_BYTES     # with logicsMsgTimestamp: the same for queues and index
    INDEXED_AT = QUEUED_AT - NOTE_BYTES     # with logicsMsgTimestamp: the end of the index at that time

cdef int64_t FLUSHED_MARK = 0x7263666C75736864      # rcflushd
cdef int64_t QUEUED_MARK = 0x7263717565756564       # rcqueued
cdef int64_t INDEXED_MARK = 0x7263696E64657864      # rcindexd

FILE_BYTES = RC_CHECKPOINT_BYTES
LEAST_BYTES = USED_BYTES
SAFETY_MS = 3000                # records that are older than a checkpoint by this time are durable
LATEST_MS = 253_402_300_800_000  # the year 10000


class Checkpoint(
    namedtuple(
        "Checkpoint",
        "physic_msg_timestamp logics_msg_timestamp index_msg_timestamp master_flushed_offset confirm_phy_offset",
        module=__name__,
    )
):
    """The fields in the order of the file: three store times in ms up to which data is durable, and two offsets."""

    __slots__ = ()

    @property
    def min_timestamp(self):
        """Messages stored up to this time (ms) are durable in the log and in the consume queues; 0: none."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def min_timestamp_index(self):
        """Messages stored up to this time (ms) are in the index too; 0: none."""
        return min(self.min_timestamp, self.index_msg_timestamp)


NOTHING = Checkpoint(0, 0, 0, 0, 0)     # nothing is known to be durable


cdef void encode_fields(const int64_t* five, uint8_t* dst) noexcept nogil:
    """Write the fields in the format of the file; dst: USED_BYTES bytes."""
    rc_put_i64(dst + RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT, five[0])
    rc_put_i64(dst + RC_CHECKPOINT_LOGICS_TIMESTAMP_AT, five[1])
    rc_put_i64(dst + RC_CHECKPOINT_INDEX_TIMESTAMP_AT, five[2])
    rc_put_i64(dst + RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT, five[3])
    rc_put_i64(dst + RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT, five[4])


cdef void encode_note(uint8_t* dst, int64_t mark, int64_t timestamp, int64_t phy_offset) noexcept nogil:
    rc_put_i64(dst, mark)
    rc_put_i64(dst + 8, timestamp)
    rc_put_i64(dst + 16, phy_offset)


cdef int checkpoint_write(
    int fd, const int64_t* five, int64_t flushed, int64_t queued, int64_t indexed,
) noexcept nogil:
    cdef uint8_t data[HEAD_BYTES]
    cdef int rc = 0
    memset(data, 0, HEAD_BYTES)
    if pread(fd, data, HEAD_BYTES, 0) < 0:      # keep the bytes between the fields and the notes
        return c_errno
    encode_fields(five, data)
    if flushed >= 0:
        encode_note(data + FLUSHED_AT, FLUSHED_MARK, five[0], flushed)
    if queued >= 0:
        encode_note(data + QUEUED_AT, QUEUED_MARK, five[1], queued)
        encode_note(data + INDEXED_AT, INDEXED_MARK, five[1], indexed)
    rc = write_all(fd, data, HEAD_BYTES, 0)
    if rc == 0:
        rc = rc_sync_file(fd)
        while rc == EINTR:
            rc = rc_sync_file(fd)
    return rc


cdef int write_all(int fd, const uint8_t* data, size_t size, int64_t at) noexcept nogil:
    cdef ssize_t wrote
    while True:
        wrote = pwrite(fd, data, size, at)
        if wrote == <ssize_t>size:
            return 0
        if wrote >= 0:
            return EIO          # a partial write, although the file has these bytes
        if c_errno != EINTR:
            return c_errno


cdef int five_of(fields, int64_t* five) except -1:
    cdef Py_ssize_t i
    if len(fields) != FIELDS:
        raise ValueError(f"a checkpoint has {FIELDS} fields, not {len(fields)}")
    for i in range(FIELDS):
        five[i] = fields[i]
    return 0


def decode(const uint8_t[::1] data not None):
    """Read the fields of a checkpoint file. 0 means never; a field that an older release does not write is also 0.

    data  the bytes of the file; bytes after LEAST_BYTES are ignored
    Raises ValueError if there are fewer.
    Source: RocketMQ StoreCheckpoint.
    """
    if data.shape[0] < LEAST_BYTES:
        raise ValueError(f"a checkpoint has at least {LEAST_BYTES} bytes, not {data.shape[0]}")
    return Checkpoint(
        rc_get_i64(&data[RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_LOGICS_TIMESTAMP_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_INDEX_TIMESTAMP_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT]),
    )


def encode(checkpoint):
    """Return a checkpoint file with these fields: FILE_BYTES bytes, with zeros after the fields.

    checkpoint  a Checkpoint, or its five numbers
    Raises OverflowError for a number of more than 64 bits.
    """
    cdef int64_t[FIELDS] five
    cdef uint8_t[USED_BYTES] data
    five_of(checkpoint, five)
    encode_fields(five, data)
    return data[:USED_BYTES] + bytes(FILE_BYTES - USED_BYTES)


def read(path):
    """Read the checkpoint of a file. Return NOTHING if the file is missing, unreadable, short, or has impossible
    values.

    path  str or os.PathLike
    A checkpoint only saves work in recovery, so a doubtful one is not used.
    """
    try:
        fd = open_regular(path)
        try:
            found = decode(os.read(fd, LEAST_BYTES))
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return NOTHING
    times, offsets = found[:3], found[3:]
    if min(times) < 0 or max(times) >= LATEST_MS or min(offsets) < -1:  # -1: RocketMQ has not confirmed anything
        return NOTHING
    return found


def flushed_offset(path, checkpoint):
    """Physical offset up to which the log was durable when rocketc wrote this checkpoint; -1 if another program wrote
    it.

    path        str or os.PathLike: the file
    checkpoint  what read() returned for it
    This is more exact than store times: if the clock was set back, later messages have earlier times.
    """
    return noted(path, FLUSHED_AT, FLUSHED_MARK, checkpoint.physic_msg_timestamp)


def queued_offset(path, checkpoint):
    """Physical offset up to which the log was durable in consume queues and index when rocketc wrote this checkpoint;
    -1 if another program wrote it.

    path        str or os.PathLike: the file
    checkpoint  what read() returned for it
    """
    return noted(path, QUEUED_AT, QUEUED_MARK, checkpoint.logics_msg_timestamp)


def indexed_offset(path, checkpoint):
    """The end of the index when it was durable up to queued_offset(); -1 if it is unknown.

    It is one more than the physical offset of the last record with a key; 0 if there was none.

    path        str or os.PathLike: the file
    checkpoint  what read() returned for it
    """
    return noted(path, INDEXED_AT, INDEXED_MARK, checkpoint.logics_msg_timestamp)


cdef int64_t noted(path, int64_t at, int64_t mark, int64_t timestamp) except -2:
    """The physical offset of a note with this timestamp; -1 if the note is missing or older."""
    cdef const uint8_t[::1] note
    try:
        fd = open_regular(path)
        try:
            data = os.pread(fd, NOTE_BYTES, at)
        finally:
            os.close(fd)
    except OSError:
        return -1
    if len(data) != NOTE_BYTES:
        return -1
    note = data
    if rc_get_i64(&note[0]) != mark or rc_get_i64(&note[8]) != timestamp:
        return -1
    return max(rc_get_i64(&note[16]), -1)


def open_file(path):
    """Open a checkpoint file for checkpoint_write(). Create or extend it durably if it is missing or short.

    path  str or os.PathLike
    Returns a file descriptor, which the caller closes. The fields are kept; those of a file that is too short for them
    become 0. Raises StoreIOError or StoreFullError with the file's name.
    """
    path = os.fspath(path)
    cdef int fd = -1
    cdef size_t size
    cdef bint short
    try:
        with errors_named(path):
            fd = open_regular(path, os.O_RDWR | os.O_CREAT)
            size = os.fstat(fd).st_size
            short = size < RC_CHECKPOINT_BYTES
            if short:
                size = size if size >= USED_BYTES else 0
                if os.pwrite(fd, bytes(FILE_BYTES - size), size) != FILE_BYTES - size:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(fd)
        if short:
            sync_folder(os.path.dirname(path) or ".")
    except BaseException:
        if fd >= 0:
            os.close(fd)
        raise
    return fd


def write(path, checkpoint, *, int64_t flushed=-1):
    """Write a checkpoint in place and make it durable, and the name of a new file too.

    path        str or os.PathLike
    checkpoint  a Checkpoint, or its five numbers
    flushed     physical offset up to which the log is durable, for flushed_offset(); -1: unknown
    Raises StoreIOError or StoreFullError with the file's name, and then the file may have the old or the new fields;
    OverflowError.
    """
    cdef int64_t[FIELDS] five
    cdef int fd, rc
    five_of(checkpoint, five)
    fd = open_file(path)
    try:
        with nogil:
            rc = checkpoint_write(fd, five, flushed, -1, -1)
    finally:
        os.close(fd)
    with errors_named(os.fspath(path)):
        if rc != 0:
            raise OSError(rc, os.strerror(rc))
