"""Readers that do not know, in one way each, that a queue is another one: the simulation must find each of them."""

from __future__ import annotations

from typing import Any

from simulation.mutants import Change, replace

from rocketc.client import group_member, topic_merge

MUTANTS: dict[str, tuple[Change, str]] = {}  # what breaks the readers, and words of what is then found


def mutant(found: str) -> Any:
    def note(change: Change) -> Change:
        MUTANTS[change.__name__] = change, found
        return change

    return note


@mutant("(pushed|ordered|polled) never got")
def groups_continue_where_the_broker_says() -> None:
    replace(group_member, "is_beyond_end", lambda *what: False)


@mutant("(pushed|ordered|polled) got .* twice")
def groups_begin_again() -> None:
    async def first(*what: Any) -> int:
        return 0

    replace(group_member, "continued_at", first)


@mutant("following never got")
def followers_continue_at_the_end() -> None:
    async def none(*what: Any) -> None:
        return None

    replace(topic_merge, "first_after", none)


@mutant("following got .* twice")
def followers_begin_again() -> None:
    async def first(*what: Any) -> int:
        return 0

    replace(topic_merge, "first_after", first)


@mutant("following never got .* longer than the old one")
def followers_compare_no_message() -> None:
    async def no(reader: Any, queue: Any, range: Any, next_offset: int, last: Any) -> bool:
        return bool(range.end < next_offset)

    replace(topic_merge, "is_other", no)


@mutant("following never got")
def followers_do_not_look_at_what_was_before() -> None:
    async def none(*what: Any) -> None:
        return None

    replace(topic_merge.TopicFollower, "_before", none)
