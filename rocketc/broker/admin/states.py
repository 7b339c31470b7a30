"""Small answers to tools about replication and cold data, and the requests that are not supported, with a reason.

Source: RocketMQ AdminBrokerProcessor; shapes are those of 5.3.3.
"""

from __future__ import annotations

from typing import Protocol

from rocketc.broker.admin import forms
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call

HA_STATUS, COLD_DATA, READ_AHEAD = 907, 2003, 2004
NORMAL = "0"  # the mode of READ_AHEAD that a store has

_POP = "POP is not supported: use push or pull consumers"
_STATIC = "static topics are not supported"
_ROCKSDB = "stores in RocksDB are not supported"
_CONTROLLER = "the controller mode is not supported"
_COLD = "cold data is not limited here"
REASONS = {
    **dict.fromkeys((200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151, 400, 401, 402), _POP),
    513: _STATIC,
    **dict.fromkeys((354, 355), _ROCKSDB),
    **dict.fromkeys(range(1001, 1014), _CONTROLLER),
    **dict.fromkeys((2001, 2002), _COLD),
}


class LogStore(Protocol):
    """What States needs of a store."""

    @property
    def max_phy_offset(self) -> int: ...


class States:
    """Answers GET_BROKER_HA_STATUS (907), GET_COLD_DATA_FLOW_CTR_INFO (2003) and SET_COMMITLOG_READ_MODE (2004)."""

    codes = (HA_STATUS, COLD_DATA, READ_AHEAD)

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def process(self, call: Call) -> Answer:
        if call.command.code == READ_AHEAD:
            return _read_ahead(call)
        return self._ha_status() if call.command.code == HA_STATUS else self._cold_data()

    def _ha_status(self) -> Answer:
        """A master without slaves."""
        names = ("lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "maxOffset", "transferredByteInSecond")
        found = {
            "haClientRuntimeInfo": dict.fromkeys(names, 0),
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": True,
            "masterCommitLogMaxOffset": self._store.max_phy_offset,
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
