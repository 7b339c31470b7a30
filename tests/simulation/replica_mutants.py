"""Replication that is broken in one way each: the simulation must find what is wrong with every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketc.ha.group_transfer import GroupTransfer
from rocketc.ha.master import Master, SlaveConnection
from rocketc.ha.receiving import Receiver
from rocketc.ha.replicas import Replicas
from rocketc.ha.sending import Sending
from rocketc.ha.slave import Slave
from rocketc.status import PutStatus

Change = Callable[[], object]
MUTANTS: dict[str, tuple[Change, str]] = {}  # what breaks the replication, and words of what is then found
TOO_FEW = "is acknowledged, and|there are only copies"
BEHIND = "has the log up to"


def mutant(found: str) -> Callable[[Change], Change]:
    def note(change: Change) -> Change:
        MUTANTS[change.__name__] = change, found
        return change

    return note


def around(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method by change(old, self, ...)."""
    old = getattr(owner, name)
    setattr(owner, name, lambda self, *given, **named: change(old, self, *given, **named))


# what is acknowledged


@mutant(TOO_FEW)
def sent_is_acknowledged() -> None:
    def pump(old: Any, self: Any) -> None:
        old(self)
        if self.sending.next_offset is not None:
            self._master.transfer.report(self.replica, self.sending.next_offset)

    around(SlaveConnection, "pump", pump)


@mutant(TOO_FEW)
def first_reports_are_acknowledgements() -> None:
    around(GroupTransfer, "begin", lambda old, self, replica, first: None)


@mutant(TOO_FEW)
def copies_acknowledge() -> None:
    around(Receiver, "__init__", lambda old, self, *given, **named: old(self, *given, **{**named, "acknowledge": True}))


@mutant("there are only copies")
def copies_connect_again_at_once() -> None:
    """The master counts first reports, as RocketMQ's does: only then does it matter."""
    first_reports_are_acknowledgements()
    around(Slave, "__init__", lambda old, self, *given, **named: old(self, *given, **{**named, "settle": 0.0}))


@mutant(TOO_FEW)
def one_replica_is_enough() -> None:
    around(Replicas, "_reached", lambda old, self: self.pushed)


@mutant(TOO_FEW)
def late_messages_count() -> None:
    around(GroupTransfer, "add", lambda old, self, end, done: self._loop.call_later(3.0, done, PutStatus.PUT_OK))


# what a slave has


@mutant("is not a piece of its master's")
def nothing_is_compared() -> None:
    def compare(old: Any, self: Any) -> None:
        size = min(self._start.end - self.block_offset, len(self._transfers.block))
        self._start = self._start._replace(ours=bytes(self._transfers.block[:0]))
        self._transfers.take(size)
        if self.block_offset == self._start.end:
            self._position = self._start.end

    around(Receiver, "_compare", compare)


@mutant(BEHIND + "|refuses its master|is not a piece")
def a_turn_skips_bytes() -> None:
    def transfers(old: Any, self: Any, data: Any, now: float) -> Any:
        return old(self, data[: max(len(data) - 1, 1)], now)[:-2] or old(self, data, now)

    around(Sending, "transfers", transfers)


# what is noticed


@mutant(BEHIND)
def an_append_wakes_no_one() -> None:
    around(Master, "wait", lambda old, self, connection: True)


@mutant(BEHIND)
def silence_is_not_noticed() -> None:
    """Nor that the master closes one connection after the other, because it is behind."""
    for owner in (Receiver, Sending, Slave):
        around(
            owner, "__init__", lambda old, self, *given, **named: old(self, *given, **{**named, "housekeeping": 1e9})
        )


@mutant(BEHIND)
def a_slave_connects_once() -> None:
    async def pause(old: Any, self: Any, seconds: float) -> None:
        await old(self, 1e6 if self.connections else seconds)

    around(Slave, "_pause", pause)
