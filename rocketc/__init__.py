"""rocketc: the message store of Apache RocketMQ as a Python library."""

import logging

try:
    from rocketc._message import Message
except ImportError as error:
    raise ImportError(
        f"rocketc's extension modules are not built or do not fit this Python ({error}); "
        "run `make setup` or `pip install .`"
    ) from error

from rocketc._arrow import COLUMN_NAMES, Batch
from rocketc._ledger import Item
from rocketc._put_result import PutResult
from rocketc._record import decode_batch, encode, encode_batch
from rocketc._record import encode_blank_record as encode_blank
from rocketc._store import MessageStore
from rocketc.config import StoreConfig
from rocketc.consumer import Consumer
from rocketc.errors import (
    ClosedError,
    CorruptRecordError,
    CorruptUnitError,
    DamageWarning,
    IllegalMessageError,
    MissingCodecError,
    PageCacheBusyError,
    PatternTimeoutError,
    RocketcError,
    StoreFailedError,
    StoreFullError,
    StoreIOError,
    StoreLockedError,
)
from rocketc.export import ExportReport, export
from rocketc.ids import OffsetId, UniqueId, decode_offset_id, decode_unique_id
from rocketc.queue import Queue
from rocketc.rebuild import RebuildReport, rebuild
from rocketc.salvage import SalvageReport, salvage
from rocketc.scan import Damage, Scan, ScanReport, decode, scan
from rocketc.status import GetStatus, PutStatus
from rocketc.store import open
from rocketc.verify import FileReport, QueueRange, VerifyReport, verify

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # who wants to hear of it says where

__all__ = [
    "COLUMN_NAMES",
    "Batch",
    "ClosedError",
    "Consumer",
    "CorruptRecordError",
    "CorruptUnitError",
    "Damage",
    "DamageWarning",
    "ExportReport",
    "FileReport",
    "GetStatus",
    "IllegalMessageError",
    "Item",
    "Message",
    "MessageStore",
    "MissingCodecError",
    "OffsetId",
    "PageCacheBusyError",
    "PatternTimeoutError",
    "PutResult",
    "PutStatus",
    "Queue",
    "QueueRange",
    "RebuildReport",
    "RocketcError",
    "SalvageReport",
    "Scan",
    "ScanReport",
    "StoreConfig",
    "StoreFailedError",
    "StoreFullError",
    "StoreIOError",
    "StoreLockedError",
    "UniqueId",
    "VerifyReport",
    "decode",
    "decode_batch",
    "decode_offset_id",
    "decode_unique_id",
    "encode",
    "encode_batch",
    "encode_blank",
    "export",
    "open",
    "rebuild",
    "salvage",
    "scan",
    "verify",
]
