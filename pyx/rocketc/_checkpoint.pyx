# cython: language_level=3
"""The store checkpoint: up to which store time the log, the queues and the index are durable."""
from collections import namedtuple

from libc.stdint cimport uint8_t

from rocketc._bytes cimport rc_get_i64
from rocketc._layout cimport (
    RC_CHECKPOINT_BYTES, RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT, RC_CHECKPOINT_INDEX_TIMESTAMP_AT,
    RC_CHECKPOINT_LOGICS_TIMESTAMP_AT, RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT, RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT,
)

FILE_BYTES = RC_CHECKPOINT_BYTES
LEAST_BYTES = RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT + 8

Checkpoint = namedtuple(
    "Checkpoint",
    "physic_msg_timestamp logics_msg_timestamp index_msg_timestamp master_flushed_offset confirm_phy_offset",
    module=__name__,
)


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
