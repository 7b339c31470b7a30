# cython: language_level=3
"""The store checkpoint: up to which store time the log, the queues and the index are durable."""
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

cdef enum:
    FIELDS = 5
    USED_BYTES = RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT + 8
    HEAD_BYTES = 512            # the first sector: a power cut leaves all of it as it was, or as it was to be
    NOTE_BYTES = 24             # of a note: mark, a timestamp as it was then, a physical offset
    FLUSHED_AT = HEAD_BYTES - NOTE_BYTES    # with physicMsgTimestamp: what of the log is durable
    QUEUED_AT = FLUSHED_AT - NOTE_BYTES     # with logicsMsgTimestamp: what of it is in queues and index, durably

cdef int64_t FLUSHED_MARK = 0x7263666C75736864      # rcflushd
cdef int64_t QUEUED_MARK = 0x7263717565756564       # rcqueued

FILE_BYTES = RC_CHECKPOINT_BYTES
LEAST_BYTES = USED_BYTES
SAFETY_MS = 3000                # what is older than a checkpoint by that much is durable
LATEST_MS = 253_402_300_800_000  # the year 10000


class Checkpoint(
    namedtuple(
        "Checkpoint",
        "physic_msg_timestamp logics_msg_timestamp index_msg_timestamp master_flushed_offset confirm_phy_offset",
        module=__name__,
    )
):
    """The fields in the order of the file: store times in ms, up to which something is durable, and two offsets."""

    __slots__ = ()

    @property
    def min_timestamp(self):
        """Messages stored until then (ms) are durable in the log and in the consume queues; 0: none."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def min_timestamp_index(self):
        """Messages stored until then (ms) are in the index too; 0: none."""
        return min(self.min_timestamp, self.index_msg_timestamp)


NOTHING = Checkpoint(0, 0, 0, 0, 0)     # nothing is known to be durable


cdef void encode_fields(const int64_t* five, uint8_t* dst) noexcept nogil:
    """Write the fields as the file has them; dst: USED_BYTES bytes."""
    rc_put_i64(dst + RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT, five[0])
    rc_put_i64(dst + RC_CHECKPOINT_LOGICS_TIMESTAMP_AT, five[1])
    rc_put_i64(dst + RC_CHECKPOINT_INDEX_TIMESTAMP_AT, five[2])
    rc_put_i64(dst + RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT, five[3])
    rc_put_i64(dst + RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT, five[4])


cdef void encode_note(uint8_t* dst, int64_t mark, int64_t timestamp, int64_t phy_offset) noexcept nogil:
    rc_put_i64(dst, mark)
    rc_put_i64(dst + 8, timestamp)
    rc_put_i64(dst + 16, phy_offset)


cdef int checkpoint_write(int fd, const int64_t* five, int64_t flushed, int64_t queued) noexcept nogil:
    cdef uint8_t data[HEAD_BYTES]
    cdef int rc = 0
    memset(data, 0, HEAD_BYTES)
    if pread(fd, data, HEAD_BYTES, 0) < 0:      # what stands between is not ours
        return c_errno
    encode_fields(five, data)
    if flushed >= 0:
        encode_note(data + FLUSHED_AT, FLUSHED_MARK, five[0], flushed)
    if queued >= 0:
        encode_note(data + QUEUED_AT, QUEUED_MARK, five[1], queued)
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
            return EIO          # a part of some bytes that the file has room for
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
    """The fields of a checkpoint file; 0 is never, also where an older release has no such field.

    data  the file's bytes; those behind LEAST_BYTES mean nothing
    Raises ValueError if there are fewer.
    Source: RocketMQ StoreCheckpoint.
    """
    if data.shape[0] < LEAST_BYTES:
        raise ValueError(f"a checkpoint has {LEAST_BYTES} bytes and more, this one {data.shape[0]}")
    return Checkpoint(
        rc_get_i64(&data[RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_LOGICS_TIMESTAMP_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_INDEX_TIMESTAMP_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT]),
        rc_get_i64(&data[RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT]),
    )


def encode(checkpoint):
    """A checkpoint file of these fields: FILE_BYTES bytes, zeros behind the fields.

    checkpoint  a Checkpoint, or its five numbers
    Raises OverflowError for a number of more than 64 bits.
    """
    cdef int64_t[FIELDS] five
    cdef uint8_t[USED_BYTES] data
    five_of(checkpoint, five)
    encode_fields(five, data)
    return data[:USED_BYTES] + bytes(FILE_BYTES - USED_BYTES)


def read(path):
    """The checkpoint in a file; NOTHING if the file is missing, can't be read, is short, or no store can have meant it.

    path  str or os.PathLike
    What a checkpoint says only spares work, so a doubtful one is as good as none.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = decode(os.read(fd, LEAST_BYTES))
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return NOTHING
    times, offsets = found[:3], found[3:]
    if min(times) < 0 or max(times) >= LATEST_MS or min(offsets) < -1:  # -1: RocketMQ has confirmed nothing
        return NOTHING
    return found


def flushed_offset(path, checkpoint):
    """Physical offset up to which the log was durable when rocketc wrote this checkpoint; -1: somebody else has, since.

    path        str or os.PathLike: the file
    checkpoint  what read() says of it
    Store times tell it less well: if the clock was set back, messages that came later have earlier times.
    """
    return noted(path, FLUSHED_AT, FLUSHED_MARK, checkpoint.physic_msg_timestamp)


def queued_offset(path, checkpoint):
    """Physical offset up to which the log was in consume queues and index, durably, when rocketc wrote this checkpoint;
    -1: somebody else has, since.

    path        str or os.PathLike: the file
    checkpoint  what read() says of it
    """
    return noted(path, QUEUED_AT, QUEUED_MARK, checkpoint.logics_msg_timestamp)


cdef int64_t noted(path, int64_t at, int64_t mark, int64_t timestamp) except -2:
    """The physical offset of a note that was written with a timestamp; -1: there is none, or it is older."""
    cdef const uint8_t[::1] note
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
    """Open a checkpoint file for checkpoint_write(), made whole and durable if it is missing or short.

    path  str or os.PathLike
    Returns a file descriptor, the caller's to close. What the file says stays; one that is too short to say anything
    says 0. Raises StoreIOError or StoreFullError with the file's name.
    """
    path = os.fspath(path)
    cdef int fd = -1
    cdef size_t size
    cdef bint short
    try:
        with errors_named(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
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
    """Write a checkpoint in place and make it durable, the file too if it is new.

    path        str or os.PathLike
    checkpoint  a Checkpoint, or its five numbers
    flushed     physical offset up to which the log is durable, for flushed_offset(); -1: it is not known
    Raises StoreIOError or StoreFullError with the file's name, and then the file may say either; OverflowError.
    """
    cdef int64_t[FIELDS] five
    cdef int fd, rc
    five_of(checkpoint, five)
    fd = open_file(path)
    try:
        with nogil:
            rc = checkpoint_write(fd, five, flushed, -1)
    finally:
        os.close(fd)
    with errors_named(os.fspath(path)):
        if rc != 0:
            raise OSError(rc, os.strerror(rc))
