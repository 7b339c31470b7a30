"""How fast is a broker, with RocketMQ's client and with prepared frames; against Java's, Redis, NATS and floors?"""

import signal
import sys
from pathlib import Path

import brokers
import java_peer
import rows_clients
import rows_delays
import rows_overload
import rows_pulls
import rows_replicas
import rows_sends
import rows_topics
from writing import Bench, recycle_pages, scratch

bench = Bench("broker", __doc__)
bench.rounds = 3 if bench.quick else 7
RELEASES = java_peer.RELEASES[1:] if bench.quick else java_peer.RELEASES


def main():
    try:
        __import__("uvloop")
    except ImportError:
        print("broker: uvloop is not installed (the extra broker): nothing is measured", file=sys.stderr)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the servers, too
    recycle_pages(bench)
    with scratch(bench) as folder:
        measured(folder)


def measured(folder: Path):
    with brokers.ours(folder) as broker:
        rows_sends.floors(bench, folder, broker)
        rows_sends.beside_peers(bench, folder, broker, always=False)
    with brokers.ours(folder) as broker:  # a new one: the messages that are pulled are at the end of its log
        rows_pulls.pulls(bench, folder, broker)
        rows_pulls.held(bench, folder, broker)
    with brokers.ours(folder, flush="sync") as broker:
        rows_sends.synced(bench, folder, broker)
        rows_sends.beside_peers(bench, folder, broker, always=True)
    rows_pulls.beside_filters(bench, folder)
    rows_pulls.beside_slow_peers(bench, folder)
    rows_delays.delays(bench, folder)
    rows_delays.pending(bench, folder)
    rows_delays.retries(bench, folder)
    rows_overload.overload(bench, folder)
    rows_overload.beside_hostile_clients(bench, folder)
    rows_overload.fairness(bench, folder)
    rows_topics.creations(bench, folder)
    rows_clients.memory(bench, folder)
    if brokers.has_java(bench.name):
        for release in RELEASES:
            rows_clients.beside_java(bench, folder, release)
        for release in RELEASES:
            rows_replicas.synced(bench, folder, release)
    rows_clients.start_rows(bench, folder, RELEASES)
    rows_clients.idle_rows(bench, RELEASES)


if __name__ == "__main__":
    main()
