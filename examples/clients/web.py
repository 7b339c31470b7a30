"""A WSGI service whose processes send and consume: `pip install rocketc gunicorn`, then in this folder

    NAMESRV_ADDR=127.0.0.1:9876 gunicorn web:app
    curl -X POST 127.0.0.1:8000/orders/o-1 -d 'one bicycle'

gunicorn reads gunicorn.conf.py, which starts and closes the clients in each process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import rocketc
from rocketc.client import Producer, PushConsumer
from rocketc.errors import ClosedError, RocketcError

# Clients are only made here: with `gunicorn --preload`, this runs before the processes are forked.
producer = Producer("shop")  # the name servers of NAMESRV_ADDR
consumer = PushConsumer("billing", consume_from_where="CONSUME_FROM_FIRST_OFFSET")


@consumer.subscribe("orders")
def bill(message: rocketc.Message) -> None:
    producer.send("bills", b"bill of " + message.body, keys=message.keys, properties={"worker": str(os.getpid())})


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    order = environ["PATH_INFO"].rpartition("/")[2]
    try:
        sent = producer.send("orders", environ["wsgi.input"].read(), keys=order, shard=order)
        status, text = "202 Accepted", sent.msg_id
    except ClosedError as error:  # the service ends; before ValueError, of which it is one
        status, text = "503 Service Unavailable", str(error)
    except ValueError as error:  # such as an empty body
        status, text = "400 Bad Request", str(error)
    except RocketcError as error:
        status, text = "503 Service Unavailable", str(error)
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [text.encode()]
