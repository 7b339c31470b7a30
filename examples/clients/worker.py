"""A worker that consumes orders until Ctrl-C or SIGTERM: NAMESRV_ADDR=127.0.0.1:9876 python worker.py

Start it twice, and each process gets half of the queues. An order that fails comes again, later each time.
"""

from __future__ import annotations

import logging
import signal

import rocketc
from rocketc.client import PushConsumer, RetryLater

log = logging.getLogger("worker")


def bill(message: rocketc.Message) -> None:
    """Write the bill of an order. A message may come twice: a real one would look whether the bill exists."""
    order = message.body.decode()
    if "?" in order:
        raise ValueError(f"what is {order!r}?")  # logged; it comes again
    if "later" in order and message.reconsume_times == 0:
        raise RetryLater("1s")  # not an error, but not yet
    log.info("%s: billed %s", message.keys, order)


def stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt  # a handler must not call close()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, stop)
    try:
        with PushConsumer("billing", consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer:  # NAMESRV_ADDR
            consumer.subscribe("orders", listener=bill)
            log.info("ready")
            consumer.wait()
    except KeyboardInterrupt:
        log.info("ended")


if __name__ == "__main__":
    main()
