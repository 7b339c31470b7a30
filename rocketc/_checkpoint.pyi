"""The store checkpoint: up to which store time the log, the queues and the index are durable."""

from typing import NamedTuple

from typing_extensions import Buffer

FILE_BYTES: int
LEAST_BYTES: int

class Checkpoint(NamedTuple):
    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int

def decode(data: Buffer) -> Checkpoint: ...
