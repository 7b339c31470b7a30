"""Sends that wait for a slave: our master and RocketMQ's, each with a slave of its own. Rows for bench_broker."""

import time
from pathlib import Path

import brokers
from common import Bench
from rows_sends import Loaded, busy_generator, costs, files

from rocketc import client

DEPTH = 1000
GOAL = 2
FOLLOW_SECONDS = 60


def slave_of(folder: Path, release: str, master: brokers.Process, **more: object) -> brokers.Process:
    """Start a slave of RocketMQ. The name server of the master tells it where to connect. more: of JavaCluster.java"""
    settings = {
        **{"namePort": "none", "nameServer": f"127.0.0.1:{master.ports['nameServer']}", "broker.brokerId": 1},
        **{"store.brokerRole": "SLAVE", "store.haSendHeartbeatInterval": 500, **more},
    }
    return brokers.java(folder, release, **settings)


def follows(master: brokers.Process):
    """Wait until the sends to a master are acknowledged by its slave."""
    end = time.monotonic() + FOLLOW_SECONDS
    with client.Producer("bench", f"127.0.0.1:{master.ports['nameServer']}", send_msg_timeout=10_000) as producer:
        while producer.send("BenchTopic", b"x").status is not client.SendStatus.SEND_OK:
            if time.monotonic() > end:
                master.fail("its slave does not follow")
            time.sleep(0.05)


def synced(bench: Bench, folder: Path, release: str):
    """1,000 sends in flight; each answer waits until the slave has the message."""
    sends, _, _ = files(folder)
    case, against = f"sync replication, one connection, {DEPTH} in flight", f"Java {release}"
    if not bench.wanted(case, against):
        return
    count = 20_000 if bench.quick else 300_000
    # JavaCluster turns the fast failure off, too.
    our_role = {"brokerRole": "SYNC_MASTER", "haListenPort": brokers.free_port(), "brokerFastFailureEnable": "false"}
    java_role = {"store.brokerRole": "SYNC_MASTER", "store.inSyncReplicas": 2, "store.totalReplicas": 2}
    if release.startswith("4"):
        java_role = {"store.brokerRole": "SYNC_MASTER"}  # it always waits
    with (
        brokers.ours(folder, **our_role) as ours,
        brokers.java(folder, release, **java_role) as java,
        slave_of(folder, release, ours) as our_slave,
        slave_of(folder, release, java) as their_slave,
    ):
        for master in (ours, java):
            follows(master)
        our_side, their_side = Loaded(ours, sends, 1, DEPTH, count), Loaded(java, sends, 1, DEPTH, count)
        rounds = bench.row(
            case, against=against, goal=GOAL, work=count / 1e3, unit="k/s", ours=our_side, theirs=their_side
        )
        if rounds:
            busy_generator(bench, case, our_side, their_side)
            costs(bench, rounds, case, against, our_side, their_side)
        for slave in (our_slave, their_slave):
            if slave.popen.poll() is not None:
                slave.fail("ended")
