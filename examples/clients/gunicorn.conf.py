"""What gunicorn does for web.py: each process starts its clients after the fork, and closes them at its end."""

import web

workers = 2
max_requests = 10_000  # then a new process takes the place of an old one
max_requests_jitter = 1000


def post_worker_init(worker: object) -> None:
    web.producer.start()
    web.consumer.start()


def worker_exit(server: object, worker: object) -> None:
    web.consumer.close()
    web.producer.close()
