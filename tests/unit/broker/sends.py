"""Sends to a broker on virtual time, by the compiled path and by the processor: what is stored and counted."""

from collections import Counter

from simulation.brokers import scene

TOLD = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def stored(stage, topic="orders", queue_id=0):
    while stage.store.step():
        pass
    return stage.store.get(topic, queue_id, 0, 100, decompress=False).messages


def counts(stage):
    """The number of requests by (request code, code of the answer), of the compiled path and of the server."""
    found = Counter()
    for times in (stage.broker.path.times, stage.broker.server.times):
        for (request, answer, _), (buckets, _) in times.read().items():
            found[request, answer] += sum(buckets)
    return found


async def play_on(root, main, *, by_path, **how):
    """Run main(scene, client), with the compiled path or without it. The topic `orders` has four queues."""
    async with scene(root, **how) as stage:
        client = stage.client()
        await client.send(body=b"first", queueId=9999)  # creates the topic; the message is refused
        stage.broker.path.enabled = by_path
        before = stage.broker.path.sent
        await main(stage, client)
        if not by_path:
            assert stage.broker.path.sent == before
