"""rocketc: the message store of Apache RocketMQ as a Python library."""

import importlib
import importlib.machinery
import logging
import os
import sys
from typing import TYPE_CHECKING

try:
    from rocketc.read._message import Message
except ImportError as error:
    from rocketc import unbuilt

    raise ImportError(unbuilt.why(error, __spec__)) from None

from rocketc import exporting, rendering
from rocketc.last_resort import LastResort
from rocketc.read import schemes

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(LastResort())


def _html(thing: object) -> str:
    from rocketc.report.notebook import html  # loads rich, which only a notebook needs

    return html(thing)


def _serving_metrics(broker: object) -> "contextlib.AbstractAsyncContextManager[str | None]":
    from rocketc.broker.controller import BrokerController
    from rocketc.metrics.http_endpoint import serving_metrics  # loads what only a broker with metrics needs

    assert isinstance(broker, BrokerController)
    return serving_metrics(broker)


def _scan_cluster(url: str, **arguments: object) -> "Scan":
    from rocketc.client.scan_url import scan_url  # loads the client

    return scan_url(url, **arguments)  # type: ignore[arg-type]


rendering.install(_html)
exporting.install(_serving_metrics)
schemes.register(schemes.CLUSTER, _scan_cluster)

if TYPE_CHECKING:
    import contextlib

    from rocketc import client as client
    from rocketc import ha as ha
    from rocketc import metrics as metrics
    from rocketc.broker.embedded import Broker
    from rocketc.config import StoreConfig
    from rocketc.derived.queue_change import QueueChange
    from rocketc.errors import (
        ClosedError,
        CorruptRecordError,
        CorruptUnitError,
        DamageWarning,
        IllegalMessageError,
        MissingCodecError,
        MissingTopicWarning,
        PageCacheBusyError,
        PatternTimeoutError,
        PhyOffsetError,
        ReplicaError,
        RocketcError,
        SqlError,
        StoreFailedError,
        StoreFullError,
        StoreIOError,
        StoreLockedError,
    )
    from rocketc.exports.export import ExportReport, export
    from rocketc.format._encoding import decode_batch, encode, encode_batch
    from rocketc.format._encoding import encode_blank_record as encode_blank
    from rocketc.format.ids import OffsetId, UniqueId, decode_offset_id, decode_unique_id
    from rocketc.jobs.rebuild import RebuildReport, rebuild
    from rocketc.jobs.replicate import ReplicaProgress, Replication, replicate
    from rocketc.jobs.salvage import SalvageReport, salvage
    from rocketc.jobs.verify import FileReport, QueueRange, VerifyReport, verify
    from rocketc.log._put_result import PutResult
    from rocketc.read._arrow import COLUMN_NAMES, Batch
    from rocketc.read.scan import Scan, decode, scan
    from rocketc.read.scan_report import Damage, ScanReport
    from rocketc.status import GetStatus, PutStatus
    from rocketc.store._lookups import QueryResult
    from rocketc.store._queue_reader import GetResult
    from rocketc.store._raw_records import RawGetResult
    from rocketc.store._store import MessageStore
    from rocketc.store.cleaning import Cleaned, CleanReport, OldestKept
    from rocketc.store.opening import open
    from rocketc.store.subscription import Subscription
    from rocketc.workqueue._in_flight import Item
    from rocketc.workqueue.consumer import Consumer
    from rocketc.workqueue.queue import Queue
else:
    # A module is loaded when one of its names is first used: `rocketc --help` takes 40 % of the time it took before.
    _HOMES = {
        "broker.embedded": ["Broker"],
        "config": ["StoreConfig"],
        "derived.queue_change": ["QueueChange"],
        "errors": [
            "ClosedError",
            "CorruptRecordError",
            "CorruptUnitError",
            "DamageWarning",
            "IllegalMessageError",
            "MissingCodecError",
            "MissingTopicWarning",
            "PageCacheBusyError",
            "PatternTimeoutError",
            "PhyOffsetError",
            "ReplicaError",
            "RocketcError",
            "SqlError",
            "StoreFailedError",
            "StoreFullError",
            "StoreIOError",
            "StoreLockedError",
        ],
        "exports.export": ["ExportReport", "export"],
        "format._encoding": ["decode_batch", "encode", "encode_batch"],
        "format.ids": ["OffsetId", "UniqueId", "decode_offset_id", "decode_unique_id"],
        "jobs.rebuild": ["RebuildReport", "rebuild"],
        "jobs.replicate": ["ReplicaProgress", "Replication", "replicate"],
        "jobs.salvage": ["SalvageReport", "salvage"],
        "jobs.verify": ["FileReport", "QueueRange", "VerifyReport", "verify"],
        "log._put_result": ["PutResult"],
        "read._arrow": ["COLUMN_NAMES", "Batch"],
        "read.scan": ["Scan", "decode", "scan"],
        "read.scan_report": ["Damage", "ScanReport"],
        "status": ["GetStatus", "PutStatus"],
        "store._lookups": ["QueryResult"],
        "store._queue_reader": ["GetResult"],
        "store._raw_records": ["RawGetResult"],
        "store._store": ["MessageStore"],
        "store.cleaning": ["Cleaned", "CleanReport", "OldestKept"],
        "store.opening": ["open"],
        "store.subscription": ["Subscription"],
        "workqueue._in_flight": ["Item"],
        "workqueue.consumer": ["Consumer"],
        "workqueue.queue": ["Queue"],
    }
    _HOME_OF = {name: (module, name) for module, names in _HOMES.items() for name in names}
    _PACKAGES = {"client", "ha", "metrics"}  # each is imported when it is used
    _HOME_OF["encode_blank"] = ("format._encoding", "encode_blank_record")

    def __getattr__(name: str) -> object:
        if name in _PACKAGES:
            return importlib.import_module(f"rocketc.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} does not have an attribute {name!r}")
        module, attribute = _HOME_OF[name]
        globals()[name] = getattr(importlib.import_module(f"rocketc.{module}"), attribute)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "COLUMN_NAMES",
    "Batch",
    "Broker",
    "CleanReport",
    "Cleaned",
    "ClosedError",
    "Consumer",
    "CorruptRecordError",
    "CorruptUnitError",
    "Damage",
    "DamageWarning",
    "ExportReport",
    "FileReport",
    "GetResult",
    "GetStatus",
    "IllegalMessageError",
    "Item",
    "Message",
    "MessageStore",
    "MissingCodecError",
    "MissingTopicWarning",
    "OffsetId",
    "OldestKept",
    "PageCacheBusyError",
    "PatternTimeoutError",
    "PhyOffsetError",
    "PutResult",
    "PutStatus",
    "QueryResult",
    "Queue",
    "QueueChange",
    "QueueRange",
    "RawGetResult",
    "RebuildReport",
    "ReplicaError",
    "ReplicaProgress",
    "Replication",
    "RocketcError",
    "SalvageReport",
    "Scan",
    "ScanReport",
    "SqlError",
    "StoreConfig",
    "StoreFailedError",
    "StoreFullError",
    "StoreIOError",
    "StoreLockedError",
    "Subscription",
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
    "replicate",
    "salvage",
    "scan",
    "verify",
]


def _choose_worker_python() -> None:
    """Make Spark's workers run this Python, which has rocketc. Without PYSPARK_PYTHON they run `python3`.

    Nothing changes if the user has set it, if spark-submit started this program, or if pyspark is not installed. In a
    running session it is too late: then a warning says what the workers lack. rocketc.spark is not loaded otherwise,
    because it loads pyspark.
    """
    pyspark = sys.modules.get("pyspark")
    if getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None) is not None:
        from rocketc.spark.worker_python import warn_about_worker_python

        warn_about_worker_python()
        return
    given = {"PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"} & os.environ.keys()
    if not given and sys.executable and (pyspark or importlib.machinery.PathFinder.find_spec("pyspark")):
        os.environ["PYSPARK_PYTHON"] = sys.executable


_choose_worker_python()
