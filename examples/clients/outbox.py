"""Places orders: each goes into SQLite, and a message about it into a topic. Both happen or neither, also in a crash.

    echo 'o-1 one bicycle' | NAMESRV_ADDR=127.0.0.1:9876 python outbox.py shop.db

Start it again after a crash, and give it the same orders: it places the ones that are missing. While it runs, it also
answers the broker about the messages of a process that died.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Callable, Iterable

import rocketc
from rocketc.client import LocalTransactionState, TransactionProducer

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (message TEXT PRIMARY KEY, is_committed INTEGER NOT NULL);
"""


def connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30)
    database.executescript(TABLES)
    return database


def place(producer: TransactionProducer, database: sqlite3.Connection, order: str, text: str) -> str:
    """Store an order and send a message about it. An order that is stored already has its message: nothing to do."""
    if database.execute("SELECT 1 FROM orders WHERE id = ?", (order,)).fetchone():
        return "stored before"
    with producer.transaction("orders", text.encode(), keys=order) as transaction:
        store(database, order, text, transaction.msg_id)
    return f"stored, message {transaction.msg_id}"


def store(database: sqlite3.Connection, order: str, text: str, message: str) -> None:
    """Store an order, and the id of its message, in one transaction of the database."""
    with database:
        database.execute("INSERT INTO outbox VALUES (?, 1)", (message,))
        database.execute("INSERT INTO orders VALUES (?, ?)", (order, text))


def check_in(path: str) -> Callable[[rocketc.Message], LocalTransactionState]:
    """Return the function that answers the broker: was the transaction with this message committed?"""

    def check(message: rocketc.Message) -> LocalTransactionState:
        key = message.properties["UNIQ_KEY"]  # Transaction.msg_id
        with contextlib.closing(connect(path)) as database:
            with database:  # from now on, store() fails for this message: an answer must stay true
                database.execute("INSERT OR IGNORE INTO outbox VALUES (?, 0)", (key,))
            [is_committed] = database.execute("SELECT is_committed FROM outbox WHERE message = ?", (key,)).fetchone()
        return LocalTransactionState.COMMIT_MESSAGE if is_committed else LocalTransactionState.ROLLBACK_MESSAGE

    return check


def main(path: str, lines: Iterable[str]) -> None:
    with (
        contextlib.closing(connect(path)) as database,
        TransactionProducer("shop", check=check_in(path), topics=["orders"]) as producer,  # NAMESRV_ADDR
    ):
        for line in lines:
            order, _, text = line.strip().partition(" ")
            print(f"{order}: {place(producer, database, order, text)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
