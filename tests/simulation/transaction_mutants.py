"""Brokers and producers whose transactions are broken in one way each: the simulation must find each of them."""

from __future__ import annotations

import asyncio
from typing import Any

from simulation.client_mutants import Change, later, replace

from rocketc._layout import FLAG_COMMIT
from rocketc.broker import decisions, end_transaction, op_marks, transaction_check, transactions
from rocketc.client import async_transaction_producer, transaction_checks, transaction_states

MUTANTS: dict[str, tuple[Change, str]] = {}  # what breaks the code, and words of what is then found


def mutant(found: str) -> Any:
    def note(change: Change) -> Change:
        MUTANTS[change.__name__] = change, found
        return change

    return note


def only_the_processor() -> None:
    """The compiled path does not end transactions."""
    replace(end_transaction.EndTransactionProcessor, "fast_path", lambda *arguments: None)


# the broker


@mutant("but it is not committed")
def a_rollback_commits() -> None:
    only_the_processor()
    replace(end_transaction, "FLAG_ROLLBACK", -1)
    process = end_transaction.EndTransactionProcessor.process

    def processed(self: Any, call: Any) -> Any:
        if call.values.get("commitOrRollback", 0) != 0:
            call.values["commitOrRollback"] = FLAG_COMMIT
        return process(self, call)

    replace(end_transaction.EndTransactionProcessor, "process", processed)


@mutant("never delivered")
def a_commit_is_only_marked() -> None:
    only_the_processor()
    replace(end_transaction.EndTransactionProcessor, "_commit", lambda self, half, place: None)


@mutant("never delivered")
def nobody_is_asked() -> None:
    replace(transactions.TransactionService, "check", later)


@mutant("never delivered")
def the_copy_of_a_check_is_not_stored() -> None:
    replace(transactions.TransactionService, "_copy", lambda *arguments: end_transaction.Stored(None, 1 << 40, 1 << 40))


@mutant("never delivered|still asks")
def a_check_names_the_half_message_before() -> None:
    copy = transactions.TransactionService._copy

    def copied(self: Any, half: Any, topic: str, queue_id: int, properties: Any) -> Any:
        stored = copy(self, half, topic, queue_id, properties)
        return stored._replace(phy_offset=half.message.phy_offset)

    replace(transactions.TransactionService, "_copy", copied)


@mutant("never delivered")
def offsets_pass_transactions_that_are_open() -> None:
    keep = transactions.TransactionService._keep

    async def kept(self: Any, one: Any, queue_id: int, before: tuple[int, int]) -> tuple[int, int]:
        one._half = self._store.max_offset(transactions.names.HALF_TOPIC, queue_id)
        return await keep(self, one, queue_id, before)

    replace(transactions.TransactionService, "_keep", kept)


@mutant("still asks")
def ends_are_not_marked() -> None:
    replace(op_marks.OpMarks, "add", lambda self, queue_id, offset: True)


@mutant("never delivered")
def every_half_message_is_marked() -> None:
    only_the_processor()
    init = end_transaction.EndTransactionProcessor._end

    def ended(self: Any, call: Any, message: Any) -> Any:
        for offset in range(self._store.max_offset(end_transaction.names.HALF_TOPIC, 0, committed=False)):
            self._marks.add(0, offset)
        return init(self, call, message)

    replace(end_transaction.EndTransactionProcessor, "_end", ended)


@mutant("is delivered 2 times")
def a_second_decision_counts() -> None:
    only_the_processor()
    replace(decisions.Decisions, "find", lambda self, half: decisions.Transaction([half], False))


@mutant("is delivered 2 times")
def only_marks_are_decisions() -> None:
    """A kill loses those that are not stored yet."""
    replace(decisions.Decisions, "_is_committed", lambda self, half: False)


@mutant("is delivered 2 times")
def each_half_message_is_a_transaction() -> None:
    only_the_processor()
    replace(decisions.Decisions, "_halves", lambda self, half: iter([half]))


@mutant("is given up too early")
def a_message_is_given_up_early() -> None:
    rules = transaction_check.Rules
    replace(transactions, "Rules", lambda timeout, most, *more: rules(timeout, most - 1, *more))


# the producer


@mutant("but it is not committed")
def an_unknown_state_commits() -> None:
    replace(transaction_states, "_NUMBERS", {**transaction_states._NUMBERS, transaction_states.UNKNOWN: FLAG_COMMIT})


@mutant("never delivered")
def a_check_that_fails_rolls_back() -> None:
    replace(transaction_checks, "UNKNOWN", transaction_states.ROLLBACK)


@mutant("never delivered")
def checks_are_not_answered() -> None:
    replace(async_transaction_producer.AsyncTransactionProducer, "_answer_check", later)


@mutant("never delivered|left")
def an_end_waits_for_ever() -> None:
    async def written(self: Any, context: Any, fields: Any, remark: Any) -> None:
        await asyncio.sleep(1e9)

    replace(async_transaction_producer.AsyncTransactionProducer, "_write_end", written)
