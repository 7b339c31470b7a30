"""GET_BROKER_RUNTIME_INFO: the numbers of a broker that `mqadmin brokerStatus`, `clusterList` and `rocketc top` show.

Source: RocketMQ AdminBrokerProcessor.prepareRuntimeInfo, StoreStatsService.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rocketc.broker.rates import SPANS, Rates
from rocketc.config import StoreConfig
from rocketc.errors import RocketcError
from rocketc.read._message import Message
from rocketc.remoting.codes import Code
from rocketc.remoting.command import VERSION
from rocketc.remoting.server import Answer, Call

VERSION_NAME = "V5_3_3"
_NS = 1_000_000  # of a ms
# The broker processes requests on its event loop: nothing of these waits.
_ALWAYS_ZERO = (
    *(f"{pool}ThreadPoolQueueSize" for pool in ("send", "pull", "litePull", "query", "ack")),
    *(f"{pool}ThreadPoolQueueHeadWaitTimeMills" for pool in ("send", "pull", "litePull", "query", "ack")),
    *("EndTransactionQueueSize", "dispatchMaxBuffer"),
)
# Of RocketMQ's queues before its thread pools, which this broker does not need: tools divide by them.
_CAPACITIES = {
    "sendThreadPoolQueueCapacity": 10_000,
    "pullThreadPoolQueueCapacity": 100_000,
    "litePullThreadPoolQueueCapacity": 100_000,
    "queryThreadPoolQueueCapacity": 20_000,
    "ackThreadPoolQueueCapacity": 100_000,
    "EndTransactionThreadPoolQueueCapacity": 100_000,
    "remainTransientStoreBufferNumbs": (1 << 31) - 1,  # as RocketMQ without a transient store pool
}
_PUT_TIMES = (  # RocketMQ's name of a span, and the ms at which it ends
    ("<=0ms", 1), ("0~10ms", 10), ("10~50ms", 50), ("50~100ms", 100), ("100~200ms", 200), ("200~500ms", 500),
    ("500ms~1s", 1000), ("1~2s", 2000), ("2~3s", 3000), ("3~4s", 4000), ("4~5s", 5000), ("5~10s", 10_000), ("10s~", 0),
)  # fmt: skip


class StatedStore(Protocol):
    """What RuntimeInfo needs of a store."""

    @property
    def path(self) -> str: ...
    @property
    def config(self) -> StoreConfig: ...
    @property
    def min_phy_offset(self) -> int: ...
    @property
    def max_phy_offset(self) -> int: ...
    @property
    def flushed_phy_offset(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...
    def measurements(self) -> dict[str, Any]: ...
    def message(self, phy_offset: int, *, crc: str = "body", decompress: bool = True) -> Message | None: ...


class Pulled(Protocol):
    """What RuntimeInfo needs of a PullProcessor."""

    pulled: int  # messages
    found: int  # pulls
    missed: int  # pulls


class TimedNumbers(Protocol):
    """What RuntimeInfo needs of a TimerService."""

    @property
    def enqueued(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def offset_behind(self) -> int: ...
    @property
    def read_behind(self) -> int: ...


class RuntimeInfo:
    """Answers GET_BROKER_RUNTIME_INFO (28).

    clock      ms since the epoch
    accept_at  startAcceptSendRequestTimeStamp
    slowest    seconds of the slowest pull
    timers     the numbers of timed messages; None: there are none
    delays     returns the progress of the delay levels, see DelayService
    replication_fault  returns why a slave has stopped to copy its master's log; None: it has not
    sample() is due every second: it notes the counters for the rates, and those of midnight. putMessageDistributeTime
    counts the puts that are timed, every 16th.
    """

    codes = (28,)

    def __init__(
        self,
        store: StatedStore,
        pulls: Pulled,
        clock: Callable[[], int],
        *,
        accept_at: int = 0,
        slowest: Callable[[], float] = lambda: 0.0,
        timers: TimedNumbers | None = None,
        delays: Callable[[], Mapping[int, tuple[int, int]]] = dict,
        replication_fault: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._slowest, self._timers, self._delays = slowest, timers, delays
        self._replication_fault = replication_fault
        self._store, self._pulls, self._clock, self.accept_at = store, pulls, clock, accept_at
        self.started_at = clock()
        self.rates = Rates(self._counters)
        self._earliest: tuple[int, int] = (-1, -1)  # start of the log, and the store timestamp there
        self._day = _date(self.started_at)
        self._today, self._yesterday = (0, 0), (0, 0)  # messages put and pulled until these midnights

    def _counters(self) -> tuple[int, ...]:
        pulls, timers = self._pulls, self._timers
        timed = (0, 0) if timers is None else (timers.enqueued, timers.delivered)
        found = (pulls.found, pulls.missed, pulls.found + pulls.missed, pulls.pulled)
        return self._store.stats()["records"], *found, *timed

    def sample(self, now: float) -> None:
        """Note the counters.

        now  loop.time()
        """
        self.rates.sample(now)
        if (day := _date(self._clock())) != self._day:
            self._day = day
            self._yesterday, self._today = self._today, (self._store.stats()["records"], self._pulls.pulled)

    def process(self, call: Call) -> Answer:
        try:
            table = self.table()
        except OSError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        return Answer(body=json.dumps({"table": table}, separators=(",", ":")).encode())

    def table(self) -> dict[str, str]:
        """Return the numbers as texts by RocketMQ's names. Raises OSError if a disk can't be asked."""
        whole = self._of_messages() | self._of_the_log() | self._of_puts() | self._of_the_disk()
        whole |= self._of_timers()  # after the log's: to ask for the end of a queue dispatches
        uptime = max(self._clock() - self.started_at, 0) // 1000
        days, hours, minutes, seconds = uptime // 86400, uptime // 3600 % 24, uptime // 60 % 60, uptime % 60
        whole |= {
            "brokerActive": "true",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "bootTimestamp": str(self.started_at),
            "startAcceptSendRequestTimeStamp": str(self.accept_at),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
            "pageCacheLockTimeMills": "0",
        }
        if (fault := self._replication_fault()) is not None:
            whole["replicationFault"] = fault  # not in RocketMQ
        whole |= {f"scheduleMessageOffset_{level}": f"{at},{end}" for level, (at, end) in self._delays().items()}
        whole |= {name: str(capacity) for name, capacity in _CAPACITIES.items()}
        return whole | dict.fromkeys(_ALWAYS_ZERO, "0")

    def _of_messages(self) -> dict[str, str]:
        put, got = self._store.stats()["records"], self._pulls.pulled
        names = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps")
        return {
            "msgPutTotalYesterdayMorning": str(self._yesterday[0]),
            "msgPutTotalTodayMorning": str(self._today[0]),
            "msgPutTotalTodayNow": str(put),
            "msgGetTotalYesterdayMorning": str(self._yesterday[1]),
            "msgGetTotalTodayMorning": str(self._today[1]),
            "msgGetTotalTodayNow": str(got),
            "getMessageEntireTimeMax": str(int(self._slowest() * 1000)),
            **{name: self.rates.show(index) for index, name in enumerate(names)},
        }

    def _of_timers(self) -> dict[str, str]:
        timers = self._timers
        numbers = (0, 0, 0) if timers is None else (timers.read_behind // 1000, timers.offset_behind, timers.pending)
        return {
            "timerReadBehind": str(numbers[0]),
            "timerOffsetBehind": str(numbers[1]),
            "timerCongestNum": str(numbers[2]),
            "timerEnqueueTps": str(self.rates.over(5, SPANS[0]) or 0.0),
            "timerDequeueTps": str(self.rates.over(6, SPANS[0]) or 0.0),
        }

    def _of_the_log(self) -> dict[str, str]:
        store = self._store
        end = store.max_phy_offset
        return {
            "commitLogMinOffset": str(store.min_phy_offset),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(store.stats()["dispatch_behind_bytes"]),
            "remainHowManyDataToFlush": show_bytes(max(end - store.flushed_phy_offset, 0)),
            "earliestMessageTimeStamp": str(self._earliest_time()),
        }

    def _earliest_time(self) -> int:
        """Return the store timestamp of the first message; -1 if there is none. It is read once for each first file."""
        first = self._store.min_phy_offset
        if self._earliest[0] != first or self._earliest[1] < 0:
            try:
                message = self._store.message(first, crc="none", decompress=False)
            except (RocketcError, OSError):
                message = None
            self._earliest = first, -1 if message is None else message.store_timestamp
        return self._earliest[1]

    def _of_puts(self) -> dict[str, str]:
        stats = self._store.stats()
        times, count, size = stats["put_time"], stats["records"], stats["bytes"]
        return {
            "putMessageTimesTotal": str(count),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / count if count else 0.0),
            "putMessageFailedTimes": str(stats["refused"]),
            "putMessageEntireTimeMax": str(times["max"] // _NS),
            "putMessageDistributeTime": show_times(*self._store.measurements()["histograms"]["put_time"][:2]),
            "putLatency99": f"{times['p99'] / _NS:.2f}",
            "putLatency999": f"{times['p999'] / _NS:.2f}",
        }

    def _of_the_disk(self) -> dict[str, str]:
        logs = self._store.config.commit_log_paths(self._store.path)
        disks = [os.statvfs(log) for log in logs]
        total, free = disks[0].f_blocks * disks[0].f_frsize, disks[0].f_bfree * disks[0].f_frsize
        return {
            "commitLogDiskRatio": str(max(map(_ratio, disks))),
            **{f"commitLogDiskRatio_{log}": str(_ratio(disk)) for log, disk in zip(logs, disks, strict=True)},
            "consumeQueueDiskRatio": str(_ratio(os.statvfs(self._store.path))),
            "commitLogDirCapacity": f"Total : {show_bytes(total)}, Free : {show_bytes(free)}.",
        }


def show_times(bounds: list[tuple[int, int]], count: int) -> str:
    """Return how many puts took how long, as RocketMQ shows it.

    bounds  (ns, how many took less), increasing
    count   of all puts

    >>> show_times([(1 << 20, 14), (1 << 23, 19)], 20)[:34]
    '[<=0ms]:14 [0~10ms]:5 [10~50ms]:0 '
    """
    shown, before = "", 0
    for name, ms in _PUT_TIMES:
        below = count if not ms else max([less for ns, less in bounds if ns <= ms * 1_100_000], default=0)
        shown += f"[{name}]:{below - before} "
        before = below
    return shown


def _date(ms: int) -> datetime.date:
    """Return the date of a time, in the time zone of this machine."""
    return datetime.datetime.fromtimestamp(ms / 1000).date()


def _ratio(disk: os.statvfs_result) -> float:
    """Return the used part of what programs may use, rounded down to 2 digits."""
    used = disk.f_blocks - disk.f_bfree
    return used * 100 // max(used + disk.f_bavail, 1) / 100


def show_bytes(count: int) -> str:
    """Return a number of bytes as RocketMQ shows it.

    >>> show_bytes(0), show_bytes(1229), show_bytes(252 << 30)
    ('0 B', '1.2 KiB', '252.0 GiB')
    """
    size, unit = float(count), 0
    while size >= 1024 and unit < 6:
        size, unit = size / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {'KMGTPE'[unit - 1]}iB"
