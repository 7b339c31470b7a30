"""The store checkpoint: the store times up to which the log, the queues and the index are durable."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import Buffer

FILE_BYTES: int
LEAST_BYTES: int
SAFETY_MS: int
LATEST_MS: int
NOTHING: Checkpoint

class Checkpoint(NamedTuple):
    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int
    @property
    def min_timestamp(self) -> int: ...
    @property
    def min_timestamp_index(self) -> int: ...

def decode(data: Buffer) -> Checkpoint: ...
def encode(checkpoint: Sequence[int]) -> bytes: ...
def read(path: str | os.PathLike[str]) -> Checkpoint: ...
def flushed_offset(path: str | os.PathLike[str], checkpoint: Checkpoint) -> int: ...
def queued_offset(path: str | os.PathLike[str], checkpoint: Checkpoint) -> int: ...
def open_file(path: str | os.PathLike[str]) -> int: ...
def write(path: str | os.PathLike[str], checkpoint: Sequence[int], *, flushed: int = -1) -> None: ...
