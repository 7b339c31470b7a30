"""How a local transaction ended, and what a producer knows about the message that belongs to it.

Source: RocketMQ LocalTransactionState, TransactionSendResult.
"""

from __future__ import annotations

import enum
import logging
from typing import Any, Literal, NamedTuple

from rocketc._layout import FLAG_COMMIT, FLAG_ROLLBACK
from rocketc.client.send_results import SendResult
from rocketc.errors import RocketcError

_log = logging.getLogger("rocketc.client")

_REMARK_MOST = 1_000  # characters


class LocalTransactionState(enum.Enum):
    """RocketMQ's LocalTransactionState, with its spelling.

    COMMIT_MESSAGE    consumers get the message
    ROLLBACK_MESSAGE  the message is dropped
    UNKNOW            the broker asks later: see the check function of TransactionProducer
    """

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"

    @property
    def number(self) -> int:
        """The field commitOrRollback of END_TRANSACTION.

        >>> LocalTransactionState.COMMIT_MESSAGE.number
        8
        """
        return _NUMBERS[self]


COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW

_NUMBERS = {COMMIT: FLAG_COMMIT, ROLLBACK: FLAG_ROLLBACK, UNKNOWN: 0}

StateName = Literal["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
State = LocalTransactionState | StateName  # what functions of a program may return


def state_of(returned: object) -> LocalTransactionState:
    """Return the state that a function of a program means. Raises TypeError, ValueError.

    >>> state_of("COMMIT_MESSAGE")
    <LocalTransactionState.COMMIT_MESSAGE: 'COMMIT_MESSAGE'>
    >>> state_of(True)
    Traceback (most recent call last):
    TypeError: True was returned; expected a LocalTransactionState
    """
    if isinstance(returned, LocalTransactionState):
        return returned
    if not isinstance(returned, str):
        raise TypeError(f"{returned!r} was returned; expected a LocalTransactionState")
    if returned not in LocalTransactionState.__members__:
        names = ", ".join(LocalTransactionState.__members__)
        raise ValueError(f"{returned!r} was returned; allowed are {names}")
    return LocalTransactionState[returned]


def end_fields(
    group: str,
    state: LocalTransactionState,
    *,
    topic: str | None,
    offset: int,
    place: int,
    msg_id: str,
    transaction_id: str | None,
    is_checked: bool,
) -> dict[str, Any]:
    """Return the fields of END_TRANSACTION.

    offset, place  of the half message in its queue and in the log of the broker
    is_checked     it answers a question of the broker

    >>> half = {"topic": "orders", "offset": 7, "place": 4096, "msg_id": "K", "transaction_id": "K"}
    >>> fields = end_fields("shop", COMMIT, **half, is_checked=False)
    >>> fields["commitOrRollback"], fields["tranStateTableOffset"]
    (8, 7)
    """
    return {
        "topic": topic,
        "producerGroup": group,
        "tranStateTableOffset": offset,
        "commitLogOffset": place,
        "commitOrRollback": state.number,
        "fromTransactionCheck": is_checked,
        "msgId": msg_id,
        "transactionId": transaction_id,
    }


def check_local(local_transaction: object) -> None:
    """Raise TypeError for a local transaction that is not a function.

    >>> check_local("COMMIT_MESSAGE")
    Traceback (most recent call last):
    TypeError: local_transaction: expected a function that gets the message and returns its state, got str
    """
    if not callable(local_transaction):
        kind = type(local_transaction).__name__
        raise TypeError(
            f"local_transaction: expected a function that gets the message and returns its state, got {kind}"
        )


def log_unwritten(msg_id: str, state: LocalTransactionState, error: RocketcError) -> None:
    """Log that END_TRANSACTION was not written.

    >>> log_unwritten("0A00", COMMIT, RocketcError("no connection"))
    """
    _log.warning("END_TRANSACTION with %s of %s was not written; the broker asks later: %s", state.name, msg_id, error)


def remark_of(error: BaseException) -> str:
    """Return what END_TRANSACTION says about an exception.

    >>> remark_of(ValueError("no stock"))
    'ValueError: no stock'
    """
    return text_of(error)[:_REMARK_MOST]


def text_of(error: BaseException) -> str:
    """Return the type and the text of an exception, as the last line of its traceback.

    >>> text_of(ValueError("no stock")), text_of(KeyError("price")), text_of(SystemExit())
    ('ValueError: no stock', "KeyError: 'price'", 'SystemExit')
    """
    try:
        text = str(error)
    except Exception:  # of a class of the program; what follows happens all the same
        text = "the exception could not make its text"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class TransactionResult(NamedTuple):
    """What became of a message and its local transaction.

    sent       where the half message is stored
    state      what END_TRANSACTION says
    error      that the local transaction raised: then the state is UNKNOW
    end_error  why END_TRANSACTION was not written; the broker asks later, and the check function decides. None: it is
               with the operating system
    """

    sent: SendResult
    state: LocalTransactionState
    error: Exception | None = None
    end_error: RocketcError | None = None

    @property
    def msg_id(self) -> str:
        """The unique id that the client gave the message (property UNIQ_KEY)."""
        return self.sent.msg_id

    @property
    def transaction_id(self) -> str:
        """The id of the transaction: the broker's, which is the unique id of the message."""
        return self.sent.transaction_id or self.sent.msg_id
