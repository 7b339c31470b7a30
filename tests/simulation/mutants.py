"""Brokers that are broken in one way each: the simulation must find what is wrong with every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rocketc.broker import (
    controller,
    delays,
    flush_waits,
    held_pulls,
    locks,
    name_servers,
    offsets,
    pull,
    send,
    send_back,
    table_writer,
)
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.subscriptions import Subscription
from rocketc.namesrv.name_server import NameServer
from rocketc.namesrv.routes import RouteTable
from rocketc.remoting.server import Server
from rocketc.status import PutStatus

Change = Callable[[], object]
MUTANTS: dict[str, tuple[Change, str]] = {}  # what breaks the broker, and words of what is then found


def mutant(found: str) -> Callable[[Change], Change]:
    def note(change: Change) -> Change:
        MUTANTS[change.__name__] = change, found
        return change

    return note


def nothing(*arguments: Any, **named: Any) -> None:
    pass


def replace(owner: Any, name: str, other: Any) -> None:
    assert hasattr(owner, name), f"there is no {name} in {owner}"
    setattr(owner, name, other)


# messages and pulls


@mutant("never got|, where ")
def answers_before_the_flush() -> None:
    replace(flush_waits.FlushWaits, "add", lambda self, end, done: self._loop.call_soon(done, 0))


@mutant("s late")
def messages_wake_no_pull() -> None:
    replace(held_pulls.HeldPulls, "on_changes", nothing)


@mutant("s late")
def tags_wake_no_pull() -> None:
    replace(Subscription, "matches", lambda self, code: self.takes_all)


@mutant("never answered")
def held_pulls_never_end() -> None:
    replace(held_pulls.HeldPulls, "_sweep", nothing)


@mutant("never got")
def pulls_skip_a_message() -> None:
    whole = pull.PullProcessor._second_answer

    def second(self: Any, call: Any) -> Any:
        answer = whole(self, call)
        if answer.code == 0:
            answer.values["nextBeginOffset"] += call.command.opaque % 50 == 7
        return answer

    replace(pull.PullProcessor, "_second_answer", second)


@mutant("out of order")
def sends_overtake_each_other() -> None:
    """What the compiled path does not take is processed a little later."""
    handle = Server.handle
    replace(Server, "handle", lambda self, *what: asyncio.get_running_loop().call_later(0.01, handle, self, *what))


@mutant("is gone")
def topics_are_not_written() -> None:
    replace(
        table_writer.TableWriter,
        "save",
        lambda self, table, done=None: done and asyncio.get_running_loop().call_soon(done, None),
    )


# offsets


@mutant("but it never got")
def pulls_commit_their_end() -> None:
    kept = offsets.ConsumerOffsetManager.commit_pull

    def commit_pull(self: Any, group: str, topic: str, queue_id: int, offset: int) -> None:
        kept(self, group, topic, queue_id, offset)
        self.commit(group, topic, queue_id, offset)

    replace(offsets.ConsumerOffsetManager, "commit_pull", commit_pull)


@mutant("the offset of")
def offsets_are_never_written() -> None:
    replace(offsets.ConsumerOffsetManager, "persist", nothing)


@mutant("the offset of")
def offsets_are_not_written_at_the_end() -> None:
    close = controller.BrokerController.close

    async def end(self: Any) -> None:
        persist = offsets.ConsumerOffsetManager.persist
        replace(offsets.ConsumerOffsetManager, "persist", nothing)
        try:
            await close(self)
        finally:
            replace(offsets.ConsumerOffsetManager, "persist", persist)

    replace(controller.BrokerController, "close", end)


# delays and retries


@mutant("early")
def delayed_messages_are_early() -> None:
    step = delays.DelayService._step

    async def early(self: Any, level: int) -> float:
        clock = self._clock
        self._clock = lambda: clock() + 700
        try:
            return await step(self, level)
        finally:
            self._clock = clock

    replace(delays.DelayService, "_step", early)


@mutant("too late")
def nothing_wakes_an_empty_level() -> None:
    processors = controller.BrokerController._processors

    def deaf(self: Any, chance: Any) -> Any:
        made = processors(self, chance)
        self.pulls.path.backs = None
        for one in made:
            if isinstance(one, (send.SendProcessor, send_back.SendBackProcessor)):
                one._delays = SimpleNamespace(levels=self.delays.levels, added=nothing)
        return made

    replace(controller.BrokerController, "_processors", deaf)


@mutant("never got")
def a_delayed_message_is_lost_in_each_slice() -> None:
    step = delays.DelayService._step

    async def skipping(self: Any, level: int) -> float:
        before = self._next.get(level, 0)
        seconds = await step(self, level)
        if self._next.get(level, 0) > before and before % 5 == 4:
            self._next[level] += 1
        return seconds

    replace(delays.DelayService, "_step", skipping)


@mutant("was delivered twice")
def delay_offsets_are_never_written() -> None:
    replace(delays.DelayService, "persist", nothing)


@mutant("never got")
def delay_offsets_are_ahead() -> None:
    """They are written while the messages are not durable: a power cut loses them."""

    def persist(self: Any) -> bool:
        for level in list(self._next):
            self._offsets.commit(level, self._store.max_offset("SCHEDULE_TOPIC_XXXX", level - 1))
        return bool(self._offsets.persist())

    replace(delays.DelayService, "persist", persist)


@mutant("again")
def send_backs_are_answered_without_a_record() -> None:
    append = send_back.SendBackProcessor._append

    def dropped(self: Any, message: Any, *what: Any) -> Any:
        if message.phy_offset % 7 == 0:
            return PutStatus.PUT_OK, 0, ""
        return append(self, message, *what)

    replace(send_back.SendBackProcessor, "_append", dropped)
    replace(send_back.SendBackProcessor, "_checked", nothing)  # none by the compiled way


@mutant("not a dead letter")
def dead_letters_are_retried() -> None:
    process = send_back.SendBackProcessor.process

    def retried(self: Any, call: Any) -> Any:
        call.values["delayLevel"] = abs(call.values["delayLevel"])
        return process(self, call)

    replace(send_back.SendBackProcessor, "process", retried)


# groups and locks


@mutant("never got")
def locks_never_end() -> None:
    replace(locks, "LOCK_MS", 1 << 60)
    replace(locks, "LOST_LOCK_MS", 1 << 60)


@mutant("was locked by")
def locks_end_at_once() -> None:
    replace(locks, "LOCK_MS", 5000)


@mutant("was locked by")
def everyone_gets_the_lock() -> None:
    replace(locks.RebalanceLockManager, "lock", lambda self, group, queues, client_id, now: set(queues))


@mutant("did not hear")
def lost_connections_stay() -> None:
    replace(controller.BrokerController, "_lost", nothing)


@mutant("did not hear")
def silent_clients_stay() -> None:
    replace(ConsumerManager, "expire", lambda self, now: [])
    replace(controller, "Server", lambda *what, **how: _without_idle(Server(*what, **how)))


def _without_idle(server: Server) -> Server:
    replace(server, "_check_times", nothing)
    return server


@mutant("did not hear")
def nobody_hears_of_new_clients() -> None:
    replace(ConsumerManager, "_changed", nothing)


# name servers


@mutant("not in the route")
def brokers_register_once() -> None:
    async def run(self: Any, period: float) -> None:
        await asyncio.sleep(1e6)

    replace(name_servers.NameServers, "run", run)


@mutant("still in the route")
def lost_brokers_stay_in_routes() -> None:
    replace(NameServer, "_lost", nothing)


@mutant("still in the route")
def silent_brokers_stay_in_routes() -> None:
    replace(RouteTable, "expire", lambda self, now: [])
    replace(NameServer, "_lost", nothing)
