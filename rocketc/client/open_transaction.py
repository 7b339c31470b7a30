"""A transaction that a `with` block brackets: what the block decides, and what it may ask."""

from __future__ import annotations

from rocketc.client.half_messages import Half
from rocketc.client.send_results import SendResult
from rocketc.client.transaction_states import COMMIT, ROLLBACK, UNKNOWN, LocalTransactionState, remark_of
from rocketc.errors import ClosedError, RocketcError
from rocketc.read._message import Message


class OpenTransaction:
    """The half message is sent where the block begins. END_TRANSACTION is sent where it ends:

    COMMIT_MESSAGE    if the block ends without an exception
    ROLLBACK_MESSAGE  after an exception that is an Exception
    UNKNOW            after Ctrl-C, a cancellation, and what else ends a program: the local transaction may be committed
                      or not, so the check function decides later
    commit(), rollback() and unknown() decide themselves. The last call counts, whatever ends the block.

    end_error  after the block: why END_TRANSACTION was not written, so that the check function decides; None: it was
    """

    def __init__(self, group: str, topic: str) -> None:
        self._group, self._topic = group, topic
        self._half: Half | None = None
        self._decision: LocalTransactionState | None = None
        self._is_ended = False
        self.end_error: RocketcError | None = None

    def __repr__(self) -> str:
        what = f"{type(self).__name__} of {self._group}, topic {self._topic}"
        if self._half is None:
            return f"<{what}, not begun>"
        words = [what, self.msg_id, "ended" if self._is_ended else "open"]
        if self._decision is not None:
            words.append(self._decision.name)
        if self.end_error is not None:
            words.append("not written")
        return f"<{', '.join(words)}>"

    @property
    def sent(self) -> SendResult:
        """Where the half message is stored."""
        return self._begun().sent

    @property
    def message(self) -> Message:
        """The half message, as the check function gets it."""
        return self._begun().message

    @property
    def msg_id(self) -> str:
        """The unique id that the client gave the message (property UNIQ_KEY)."""
        return self._begun().sent.msg_id

    @property
    def transaction_id(self) -> str:
        """The id of the transaction: the broker's, which is the unique id of the message."""
        return self._begun().transaction_id

    @property
    def state(self) -> LocalTransactionState | None:
        """What was decided; None in a block that has not decided yet."""
        return self._decision

    def commit(self) -> None:
        """Decide that consumers get the message. Raises ClosedError before and after the block, as the others do."""
        self._decide(COMMIT)

    def rollback(self) -> None:
        """Decide that the message is dropped."""
        self._decide(ROLLBACK)

    def unknown(self) -> None:
        """Decide that the broker asks later, and that the check function decides then."""
        self._decide(UNKNOWN)

    def _decide(self, state: LocalTransactionState) -> None:
        self._begun()
        if self._is_ended:
            raise ClosedError("the transaction has ended")
        self._decision = state

    def _begun(self) -> Half:
        if self._half is None:
            raise ClosedError("the transaction has not begun: use it as a context manager")
        return self._half

    def _check_new(self) -> None:
        if self._half is not None:
            raise ClosedError("the transaction has begun before: make another one")

    def _end(self, error: BaseException | None) -> tuple[Half, LocalTransactionState, str | None]:
        """End the block; return what END_TRANSACTION says."""
        half, self._is_ended = self._begun(), True
        if self._decision is None:
            self._decision = COMMIT if error is None else ROLLBACK if isinstance(error, Exception) else UNKNOWN
        return half, self._decision, None if error is None else remark_of(error)
