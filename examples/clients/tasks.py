"""Messages that become tasks of Celery, and tasks that send messages: `pip install rocketc celery`, then in this folder

    NAMESRV_ADDR=127.0.0.1:9876 CELERY_BROKER_URL=redis://127.0.0.1 celery --app tasks worker --concurrency 4

It works with the pools prefork, threads and solo.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_process_shutdown, worker_ready, worker_shutdown

import rocketc
from rocketc.client import Producer, PushConsumer

app = Celery("tasks")
producer = Producer("shop")  # only made here, as this runs before the processes of the pool are forked
consumer = PushConsumer("billing", consume_from_where="CONSUME_FROM_FIRST_OFFSET")


@consumer.subscribe("orders")
def on_order(message: rocketc.Message) -> None:
    bill.delay(message.keys, message.body.decode())


@app.task
def bill(order: str, text: str) -> str:
    producer.start()  # in each process of the pool; if it is started, this does nothing
    sent = producer.send("bills", b"bill of " + text.encode(), keys=order, properties={"worker": str(os.getpid())})
    return sent.msg_id


@worker_ready.connect
def begin(**_: Any) -> None:
    """In the main process, when the pool is there."""
    consumer.start()


@worker_shutdown.connect
@worker_process_shutdown.connect
def end(**_: Any) -> None:
    """In the main process, and in each process of the pool. There, it does nothing with the client of the main one."""
    consumer.close()
    producer.close()
