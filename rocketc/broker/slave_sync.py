"""A slave asks its master's broker for its tables, again and again.

Source: RocketMQ SlaveSynchronize; the periods are those of slaves of 4.9.7. Slaves of 5.3.3 ask about once a minute.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from rocketc.broker.bodies import LONGS, number_of, object_of, parse_body
from rocketc.broker.name_servers import Connector
from rocketc.broker.slave_tables import DELAYS, GROUPS, OFFSETS, TIMER_CHECK, TIMER_COUNTS, TOPICS
from rocketc.errors import BadRequestError, ConnectionLostError, NoAnswerError, NotSentError
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command

_log = logging.getLogger("rocketc.broker")

RUNTIME_INFO = 28
PERIOD_SECONDS = 10.0
TIMER_SECONDS = 1.0
LOOK_SECONDS = 0.05  # between two looks at the position of the own log
CALL_SECONDS = 6.0
_NAMES = {
    TOPICS: "topics",
    GROUPS: "consumer groups",
    OFFSETS: "consumer offsets",
    DELAYS: "delay offsets",
    TIMER_CHECK: "the progress of timed messages",
    TIMER_COUNTS: "the counts of timed messages",
    RUNTIME_INFO: "offsets",
}
_MAY_LACK = frozenset({TIMER_CHECK, TIMER_COUNTS})  # a master of RocketMQ 4 does not have them
T = TypeVar("T")


class Tables(Protocol):
    """What SlaveSynchronize needs of SlaveTables."""

    def take(self, code: int, body: bytes) -> bool: ...


class SlaveSynchronize:
    """Takes over the tables of a master. Create it on the thread of the event loop.

    tables     gets the bodies of the answers
    end        returns the physical offset at which the own log ends
    connector  returns how to connect to (host, port), see Channel
    has_timers  timed messages are enabled
    in_thread  False: tables are taken on the loop, for virtual time
    hook       is called with each request before it is sent, as a Signer is; None: nothing is

    Offsets say what the master has done: delivered a delayed message, or given a message to a group that acknowledged
    it. They are taken over when the own log has all that the master's log had at that time. Otherwise a slave that is
    behind, and becomes the master, would not deliver the delayed messages whose delivery it does not have.
    """

    def __init__(
        self,
        tables: Tables,
        end: Callable[[], int],
        chance: random.Random,
        connector: Connector,
        *,
        has_timers: bool = True,
        in_thread: bool = True,
        hook: Callable[[Command], object] | None = None,
    ) -> None:
        self._tables, self._end, self._chance, self._connector = tables, end, chance, connector
        self._has_timers, self._in_thread, self._hook = has_timers, in_thread, hook
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._master: str | None = None
        self._has_changed = asyncio.Event()
        self._taking = asyncio.Lock()
        self._faults: dict[int, str] = {}  # by code
        self._is_lost = False  # the last request was not answered
        self.synced: dict[int, float] = {}  # loop.time() at which the table of a code was last asked for and taken

    @property
    def master(self) -> str | None:
        """Address of the broker that is asked; None: no master is known."""
        return self._master

    def change_master(self, address: str | None) -> None:
        """Ask another broker from now on; None: none. What is on its way from the former one is not taken."""
        if address == self._master:
            return
        self._master = address
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        if address is not None:
            self._channel = Channel(self._connector(*split_address(address)), self._chance, hook=self._hook)
        self._faults.clear()
        self._is_lost = False
        self._has_changed.set()

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()

    async def run(self) -> None:
        """Synchronize for ever."""
        while True:
            self._has_changed.clear()
            if self._channel is None:
                await self._has_changed.wait()
                continue
            works = [self._every(PERIOD_SECONDS, self._settings), self._every(PERIOD_SECONDS, self._progress)]
            if self._has_timers:
                works.append(self._every(TIMER_SECONDS, self._timers))
            tasks = [asyncio.ensure_future(one) for one in (*works, self._has_changed.wait())]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
            finally:
                for one in tasks:
                    one.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _every(self, period: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            began = self._loop.time()
            await work()
            await asyncio.sleep(max(period - (self._loop.time() - began), LOOK_SECONDS))

    # what is asked for

    async def _settings(self) -> None:
        asked = self._channel
        for code in (TOPICS, GROUPS):
            body = await self._ask(code)
            if body is not None:
                await self._take(code, body, asked)

    async def _progress(self) -> None:
        await self._take_behind([OFFSETS, DELAYS, TIMER_COUNTS] if self._has_timers else [OFFSETS, DELAYS])

    async def _timers(self) -> None:
        await self._take_behind([TIMER_CHECK])

    async def _take_behind(self, codes: list[int]) -> None:
        """Ask for tables of offsets, and for the end of the master's log; take them when the own log is as long."""
        asked = self._channel
        bodies = [(code, await self._ask(code)) for code in codes]
        if all(body is None for _, body in bodies):
            return
        end = await self._master_end()
        if end is None:
            return
        while self._end() < end:
            await asyncio.sleep(LOOK_SECONDS)
        for code, body in bodies:
            if body is not None:
                await self._take(code, body, asked)

    async def _master_end(self) -> int | None:
        """Return the end of the master's log; None if it does not tell it."""
        body = await self._ask(RUNTIME_INFO)
        if body is None:
            return None
        try:
            table = object_of(object_of(parse_body(body), "the answer").get("table"), "the member table")
            if "commitLogMaxOffset" not in table:
                raise BadRequestError("the answer lacks commitLogMaxOffset")
            return number_of(table, "commitLogMaxOffset", LONGS)
        except BadRequestError as error:
            self._fault(RUNTIME_INFO, str(error))
            return None

    async def _ask(self, code: int) -> bytes | None:
        """Return the body of the master's answer to a request.

        None if it did not answer with success, or if another master is known now.
        """
        channel = self._channel
        if channel is None:
            return None
        try:
            answer = await channel.call(code, {}, self._loop.time() + CALL_SECONDS)
        except (NotSentError, ConnectionLostError, NoAnswerError) as error:
            if channel is self._channel:
                self._lost(error)
            return None
        if channel is not self._channel:
            return None
        if self._is_lost:
            self._is_lost = False
            _log.info("the master %s answers again", self._master)
        if answer.code == Code.REQUEST_CODE_NOT_SUPPORTED and code in _MAY_LACK:
            return None
        if answer.code != Code.SUCCESS:
            self._fault(code, _said(answer))
            return None
        return answer.body

    async def _take(self, code: int, body: bytes, asked: Channel | None) -> None:
        """Take over a table, unless there is another master than the one that was asked."""
        async with self._taking:
            if asked is not self._channel:
                return
            try:
                if self._in_thread:
                    await self._finish(self._loop.run_in_executor(None, self._tables.take, code, body))
                else:
                    self._tables.take(code, body)
            except Exception as error:  # any: the other tables are taken
                self._fault(code, str(error) or type(error).__name__)
                return
        self.synced[code] = self._loop.time()
        if self._faults.pop(code, None) is not None:
            _log.info("%s of the master %s are taken over again", _NAMES[code], self._master)

    async def _finish(self, work: asyncio.Future[T]) -> T:
        """Wait for work on a thread; also if this task is canceled, because the tables are closed after it."""
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})
            raise

    def _lost(self, error: Exception) -> None:
        _log.log(
            logging.DEBUG if self._is_lost else logging.WARNING,
            "the master %s does not answer: %s; its tables are not taken over meanwhile", self._master, error,
        )  # fmt: skip
        self._is_lost = True

    def _fault(self, code: int, fault: str) -> None:
        _log.log(
            logging.DEBUG if self._faults.get(code) == fault else logging.WARNING,
            "%s of the master %s are not taken over: %s; it is tried again", _NAMES[code], self._master, fault,
        )  # fmt: skip
        self._faults[code] = fault


def _said(answer: Command) -> str:
    return f"code {answer.code}: {(answer.remark or '')[:300]}"
