"""What a broker with the role SLAVE does beside serving reads: it copies its master's log, and takes over its tables.

Source: RocketMQ BrokerController with BrokerRole.SLAVE.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rocketc.broker.config import BrokerConfig
from rocketc.broker.fast_failure import REJECTED
from rocketc.broker.name_servers import Connector, tcp_connector
from rocketc.broker.slave_sync import SlaveSynchronize, Tables
from rocketc.broker.slave_tables import SlaveTables
from rocketc.errors import ReplicaError
from rocketc.ha.slave import ReplicaStore, Slave
from rocketc.remoting.addresses import join_address, split_address
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.remoting.signing import Credentials, Signer
from rocketc.store._store import MessageStore
from rocketc.tables.config_manager import Clock
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.tables.topic_counts import TimerCounts
from rocketc.tables.topics import Topics

_log = logging.getLogger("rocketc.broker")

AGAIN_SECONDS = 30.0  # after a master that had less than this slave: it may have lost its end, and get more messages
RESET = 222
_SENDS = (10, 310, 320, 36)
_CHANGES = (17, 18, 215, 200, 225, 207)
_NO_CHANGES = (
    "Can't modify topic or subscription group from slave broker, please execute it from master broker."  # of 4.9.7
)
_NO_RESET = "Can not reset offset in slave broker"  # of 5.3.3


class SlaveRefusals:
    """Answers what only a master does: it takes the place of the processors of these requests.

    Sends and the reset of offsets are refused as by 5.3.3, changes of topics and groups as by 4.9.7. 5.3.3 makes these
    changes, and loses them with the next table of its master.
    """

    codes = (*_SENDS, *_CHANGES, RESET)

    def process(self, call: Call) -> Answer:
        if call.command.code in _SENDS:
            return Answer(Code.SYSTEM_BUSY, remark=REJECTED)
        return Answer(Code.SYSTEM_ERROR, remark=_NO_RESET if call.command.code == RESET else _NO_CHANGES)


class CopiedStore(ReplicaStore, Protocol):
    """What SlaveRole needs of a store."""

    @property
    def background(self) -> bool: ...


class SlaveRole:
    """The services of a slave. Create it on the thread of the event loop; replicate() and tables.run() are services.

    store      open with broker_role SLAVE
    tables     take over the master's tables
    own        host:port of this broker
    ha_master  haMasterAddress; None: name servers tell the address
    connector  returns how to connect to the master's broker, see Channel
    ha_connector  returns how to connect to the master's HA port; None: TCP
    has_timers  timed messages are enabled
    heartbeat, housekeeping  seconds, see Slave
    credentials  the account with which requests to the master's broker are signed; None: they are not. The HA port does
                 not know accounts

    fault      why replication has stopped; None: it has not
    """

    def __init__(
        self,
        store: CopiedStore,
        tables: Tables,
        own: str,
        ha_master: str | None,
        chance: random.Random,
        connector: Connector,
        *,
        ha_connector: Connector | None = None,
        has_timers: bool = True,
        heartbeat: float = 5.0,
        housekeeping: float = 20.0,
        credentials: Credentials | None = None,
        clock: Clock,
    ) -> None:
        self._own, self._is_fixed, self._clock = own, ha_master is not None, clock
        self._loop = asyncio.get_running_loop()
        self.tables = SlaveSynchronize(
            tables,
            lambda: store.max_phy_offset,
            chance,
            connector,
            has_timers=has_timers,
            in_thread=store.background,
            hook=None if credentials is None else Signer(credentials),
        )
        address = None if ha_master is None else split_address(ha_master)
        self.copy = Slave(
            store, address, heartbeat=heartbeat, housekeeping=housekeeping, chance=chance, connect=ha_connector
        )
        self.fault: str | None = None
        self._has_changed = asyncio.Event()
        self._rates = _Rate(self._loop.time)

    @classmethod
    def of_broker(
        cls,
        store: MessageStore,
        config: BrokerConfig,
        host: tuple[str, int],
        tables: tuple[Topics, SubscriptionGroups, ConsumerOffsets, TimerCounts],
        chance: random.Random,
        connector: Connector | None,
        ha_connector: Connector | None,
        clock: Clock,
    ) -> SlaveRole:
        """Return the role of a broker on an open store.

        host    (address, port) that clients know
        tables  of topics, groups, offsets and counts of timed messages, as the broker uses them
        connector, ha_connector  see above; None: TCP
        """
        return cls(
            store,
            SlaveTables(store.path, *tables, clock=clock),
            join_address(*host),
            config.ha_master_address or None,
            chance,
            tcp_connector(asyncio.get_running_loop()) if connector is None else connector,
            ha_connector=ha_connector,
            has_timers=config.timer_wheel_enable,
            heartbeat=config.ha_send_heartbeat_interval / 1000,
            housekeeping=config.ha_housekeeping_interval / 1000,
            credentials=config.credentials,
            clock=clock,
        )

    def configure(self, config: BrokerConfig) -> None:
        """Take other times between reports, and of silence, from the next connection on."""
        self.copy.heartbeat = config.ha_send_heartbeat_interval / 1000
        self.copy.housekeeping = config.ha_housekeeping_interval / 1000

    def registered(self, fields: Mapping[str, Any]) -> None:
        """Note what the name servers say of the master.

        fields  those of an answer to REGISTER_BROKER. Without masterAddr, there is no master at the moment: its
              log is waited for at the address that is known
        """
        master, ha_master = fields.get("masterAddr") or None, fields.get("haServerAddr") or None
        try:
            if master is not None and master != self._own:
                split_address(master)
            else:
                master = None
            address = None if ha_master is None or master is None else split_address(ha_master)
        except ValueError as error:
            _log.warning("a name server tells a wrong address of the master: %s", error)
            return
        if master != self.tables.master:
            _log.info("the master is %s", "not known" if master is None else f"{master}, its log is at {ha_master}")
        self.tables.change_master(master)
        if address is not None and not self._is_fixed and address != self.copy.master:
            self.copy.change_master(address)
            self._has_changed.set()

    async def replicate(self) -> None:
        """Copy the master's log for ever. Raises an error if the store can't be used any more.

        Logs that differ stop it, until the master has another address: reads are served meanwhile.
        """
        while True:
            try:
                await self.copy.run()
            except ReplicaError as error:
                self.fault = str(error)
                if error.reason == "silent":
                    _log.error("replication waits: %s; it is tried again every %d s", error, AGAIN_SECONDS)
                    await self._wait(AGAIN_SECONDS)
                else:
                    _log.error("replication has stopped: %s; see docs/howto/slaves.md for what to do", error)
                    await self._wait(None)
                self.fault = None

    async def _wait(self, seconds: float | None) -> None:
        """Wait until the master has another address, or for these seconds. The copy knows of earlier changes."""
        self._has_changed.clear()
        waiting = asyncio.ensure_future(self._has_changed.wait())
        try:
            await asyncio.wait({waiting}, timeout=seconds)
        finally:
            waiting.cancel()

    def shown(self, config: BrokerConfig) -> str:
        """Return what the role is, as a line for people."""
        what = f"slave {config.broker_id} of {config.broker_name}"
        if self.copy.master is None:
            return f"{what}: no name server knows its master yet"
        log = f"its master's log is at {join_address(*self.copy.master)}"
        if self.tables.master is None:
            return f"{what}: {log}; no name server knows its broker yet, for topics, groups and offsets"
        return f"{what}: {log}, topics, groups and offsets are at {self.tables.master}"

    def ha_state(self) -> dict[str, Any]:
        """Return what GET_BROKER_HA_STATUS (907) says about the copy."""
        copy = self.copy
        address = {} if copy.master is None else {"masterAddr": join_address(*copy.master)}
        return {
            "lastReadTimestamp": self._ms(copy.last_read),
            "lastWriteTimestamp": self._ms(copy.last_write),
            **address,
            "masterFlushOffset": 0,
            "maxOffset": copy.position,
            "transferredByteInSecond": self._rates.of(copy.received_bytes),
        }

    def _ms(self, time: float | None) -> int:
        return 0 if time is None else self._clock() - int((self._loop.time() - time) * 1000)

    def close(self) -> None:
        """Close the connection to the master's broker."""
        self.tables.close()


class _Rate:
    """Bytes per second between two questions that are at least a second apart."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time, self._since, self._before, self._rate = time, time(), 0, 0

    def of(self, total: int) -> int:
        seconds = self._time() - self._since
        if seconds >= 1.0:
            self._rate = int((total - self._before) / seconds)
            self._since, self._before = self._time(), total
        return self._rate
