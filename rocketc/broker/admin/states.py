"""Small answers to tools about replication and cold data, and the requests that are not supported, with a reason.

Source: RocketMQ AdminBrokerProcessor; shapes are those of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.ha.master import SlaveState
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call

HA_STATUS, COLD_DATA, READ_AHEAD = 907, 2003, 2004
NORMAL = "0"  # the mode of READ_AHEAD that a store has

_POP = "POP is not supported: use push or pull consumers"
_STATIC = "static topics are not supported"
_ROCKSDB = "stores in RocksDB are not supported"
_CONTROLLER = "the controller mode is not supported"
_COLD = "cold data is not limited here"
_CONTAINER = "containers of brokers are not supported"
_FLUSH_OFFSET = "a slave flushes its log by itself, not up to an offset of its master"
REASONS = {
    **dict.fromkeys((200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151, 401), _POP),
    513: _STATIC,
    **dict.fromkeys((354, 355), _ROCKSDB),
    **dict.fromkeys(range(1001, 1014), _CONTROLLER),
    **dict.fromkeys((2001, 2002), _COLD),
    **dict.fromkeys((902, 903), _CONTAINER),
    908: _FLUSH_OFFSET,
}


class Replicating(Protocol):
    """What States needs of a Master."""

    @property
    def log_end(self) -> int: ...
    @property
    def in_sync_slaves(self) -> int: ...
    def slaves(self) -> list[SlaveState]: ...


class States:
    """Answers GET_BROKER_HA_STATUS (907), GET_COLD_DATA_FLOW_CTR_INFO (2003) and SET_COMMITLOG_READ_MODE (2004).

    ha_client  of a slave: returns what it says of its copy of the log
    """

    codes = (HA_STATUS, COLD_DATA, READ_AHEAD)

    def __init__(self, master: Replicating, ha_client: Callable[[], Mapping[str, Any]] | None = None) -> None:
        self._master, self._ha_client = master, ha_client

    def process(self, call: Call) -> Answer:
        if call.command.code == READ_AHEAD:
            return _read_ahead(call)
        if call.command.code == COLD_DATA:
            return self._cold_data()
        return self._ha_status() if self._ha_client is None else self._slave_status(self._ha_client())

    def _slave_status(self, state: Mapping[str, Any]) -> Answer:
        found = {
            "haClientRuntimeInfo": state,
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": False,
            "masterCommitLogMaxOffset": 0,
        }
        return Answer(body=forms.body(found))

    def _ha_status(self) -> Answer:
        """The numbers of a master; those of a slave are 0."""
        names = ("lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "maxOffset", "transferredByteInSecond")
        found = {
            "haClientRuntimeInfo": dict.fromkeys(names, 0),
            "haConnectionInfo": [
                {
                    "addr": slave.address,
                    "diff": slave.behind,
                    "inSync": slave.is_in_sync,
                    "slaveAckOffset": slave.acknowledged,
                    "transferFromWhere": slave.next_offset,
                    "transferredByteInSecond": slave.sent_in_second,
                }
                for slave in self._master.slaves()
            ],
            "inSyncSlaveNums": self._master.in_sync_slaves,
            "master": True,
            "masterCommitLogMaxOffset": self._master.log_end,
        }
        return Answer(body=forms.body(found))

    def _cold_data(self) -> Answer:
        found = {
            "runtimeTable": {},
            "configTable": {},
            "cgColdReadThreshold": 0,
            "globalColdReadThreshold": 0,
            "globalAcc": 0,
        }
        return Answer(body=forms.body(found))


def _read_ahead(call: Call) -> Answer:
    """The normal mode is accepted, because a store has it; any field may have it."""
    if NORMAL in call.command.fields.values():
        return Answer(remark=f"set commitlog readahead mode success, mode: {NORMAL}")
    remark = "the read-ahead of the log's files is not changed while the broker runs"
    return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


class Unsupported:
    """Answers the requests of RocketMQ's parts that this broker does not have."""

    codes = tuple(REASONS)

    def process(self, call: Call) -> Answer:
        return Answer(
            Code.REQUEST_CODE_NOT_SUPPORTED, remark=f"{REASONS[call.command.code]} (code {call.command.code})"
        )
