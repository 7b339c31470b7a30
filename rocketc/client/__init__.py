"""A client of RocketMQ's clusters: producers, and what an operator asks and changes.

    with rocketc.client.Producer("shop", "127.0.0.1:9876") as producer:
        producer.send("orders", b"...")

Knows: the bodies of name servers and brokers, routes, and which server to ask.
Does not know: stores and their files. It speaks to RocketMQ's brokers and to this project's alike.
Others use: the names below, `routes`, `settings` and `strategies`.
"""

from rocketc.client.admin import Admin
from rocketc.client.async_consumer import AsyncConsumer
from rocketc.client.async_producer import AsyncProducer
from rocketc.client.async_pull_consumer import AsyncPullConsumer
from rocketc.client.async_transaction_producer import AsyncTransactionProducer
from rocketc.client.batching import NewMessage
from rocketc.client.hook_contexts import ConsumeContext, EndTransactionContext, SendContext
from rocketc.client.orderly_context import OrderlyContext
from rocketc.client.producer import Producer
from rocketc.client.pull_consumer import PullConsumer
from rocketc.client.push_consumer import PushConsumer
from rocketc.client.retry_later import RetryLater
from rocketc.client.routes import MessageQueue
from rocketc.client.security import Credentials, Tls
from rocketc.client.send_results import SendResult, SendStatus
from rocketc.client.transaction_producer import TransactionProducer
from rocketc.client.transaction_states import LocalTransactionState, TransactionResult

__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncTransactionProducer",
    "ConsumeContext",
    "Credentials",
    "EndTransactionContext",
    "LocalTransactionState",
    "MessageQueue",
    "NewMessage",
    "OrderlyContext",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "SendContext",
    "SendResult",
    "SendStatus",
    "Tls",
    "TransactionProducer",
    "TransactionResult",
]
