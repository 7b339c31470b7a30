"""Brokers whose timed messages are broken in one way each: the simulation must find each of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from simulation.mutants import Change, nothing, replace

from rocketc.broker import names, recalls, timed_puts, timers
from rocketc.broker._timers import Enqueued
from rocketc.status import PutStatus

MUTANTS: dict[str, tuple[Change, str]] = {}  # what breaks the broker, and words of what is then found


def mutant(found: str) -> Any:
    def note(change: Change) -> Change:
        MUTANTS[change.__name__] = change, found
        return change

    return note


@mutant("too early")
def a_slot_is_delivered_early() -> None:
    class Early(timers.Timers):
        def dequeue(self, now: int) -> Any:
            return super().dequeue(now + self.step)

    replace(timers, "Timers", Early)


@mutant("too early|is late")
def a_clock_that_is_set_back_is_not_followed() -> None:
    class Ahead(timers.Timers):
        def rewind(self, time: int) -> None:
            pass

    replace(timers, "Timers", Ahead)


@mutant("is late|never delivered")
def the_wheel_is_lost_at_a_restart() -> None:
    recover = timers.TimerService._recover

    def recovered(self: Any, found: Any, check: Any) -> None:
        recover(self, found, check)
        found.wheel.clear_all()

    replace(timers.TimerService, "_recover", recovered)


@mutant("is late|never delivered")
def messages_that_are_rolled_are_forgotten() -> None:
    class Forgets(timers.Timers):
        lost = 0

        def dequeue(self, now: int) -> Any:
            rolled = self.rolled
            done = super().dequeue(now)
            self.lost += self.rolled - rolled
            return done

        def enqueue(self, found: Any, row: int, now: int, is_behind: bool = False) -> Any:
            if not self.lost:
                return super().enqueue(found, row, now, is_behind)
            self.lost -= 1
            self.queue_offset += 1
            return Enqueued(row + 1, PutStatus.PUT_OK, False)

    replace(timers, "Timers", Forgets)


@mutant("delivered twice")
def it_is_never_written_what_was_delivered() -> None:
    replace(timers.TimerService, "_persist", nothing)


@mutant("was taken back")
def recalls_name_another_message() -> None:
    put = recalls.RecallProcessor._put

    def other(self: Any, call: Any, topic: str, properties: dict[str, str], now: int) -> Any:
        properties[names.TIMER_DELETES] += "0"
        return put(self, call, topic, properties, now)

    replace(recalls.RecallProcessor, "_put", other)


@mutant("too far away")
def any_time_is_taken() -> None:
    change = timed_puts.TimedPuts.change

    def changed(self: Any, *what: Any) -> Any:
        self._config = dataclasses.replace(self._config, timer_max_delay_sec=400 * 86_400)
        return change(self, *what)

    replace(timed_puts.TimedPuts, "change", changed)
