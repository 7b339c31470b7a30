"""RocketMQ's C++ client against a broker, in a process of its own: PYTHONPATH has the package `rocketmq` of PyPI.

    cpp_client.py NAME_SERVER

The topic `orders` must have 4 queues. Prints one line of JSON: what was sent and what each consumer got. The client
writes its log into the folder logs of HOME.
"""

import json
import sys
import threading

from rocketmq.client import Message, MessageModel, Producer, PullConsumer, PushConsumer

SECONDS = 40
TOPIC = "orders"


def message(body, tags):
    made = Message(TOPIC)
    made.set_tags(tags)
    made.set_keys(f"key-{body}")
    made.set_property("origin", "cpp")
    made.set_body(body)
    return made


def send(name_server):
    """Send in each way that the client has; return the statuses."""
    producer = Producer("cpp-producers")
    producer.set_namesrv_addr(name_server)
    producer.start()
    statuses = [producer.send_sync(message(f"sync-{n}", "paid")).status.name for n in range(4)]
    statuses += [producer.send_orderly(message(f"orderly-{n}", "paid"), n).status.name for n in range(4)]
    statuses.append(producer.send_sync(message("other", "sent")).status.name)
    producer.send_oneway(message("oneway", "paid"))
    producer.shutdown()
    return statuses


def consume(name_server, group, wanted, fails=(), sends=False, **options):
    """Consume the tag `paid` until `wanted` bodies are here; those in `fails` fail at their first delivery.

    sends  send until then: a broadcasting consumer begins at the end
    """
    got, done, left = {}, threading.Event(), set(fails)

    def listen(one):
        body = one.body.decode()
        if body in left:
            left.discard(body)
            raise ValueError("once")
        got[body] = one.reconsume_times
        if len(got) == wanted:
            done.set()

    consumer = PushConsumer(group, **options)
    consumer.set_namesrv_addr(name_server)
    consumer.set_instance_name(group)
    consumer.subscribe(TOPIC, listen, "paid || due")
    consumer.set_message_batch_max_size(1)
    consumer.start()
    for _ in range(SECONDS):
        if sends:
            send(name_server)
        if done.wait(1):
            break
    consumer.shutdown()
    return got


def pull(name_server):
    consumer = PullConsumer("cpp-pull")
    consumer.set_namesrv_addr(name_server)
    consumer.start()
    got = sorted(one.body.decode() for one in consumer.pull(TOPIC))
    consumer.shutdown()
    return got


def main(name_server):
    statuses = send(name_server)
    found = {
        "statuses": statuses,
        "pull": pull(name_server),
        "concurrent": consume(name_server, "cpp-concurrent", 9, fails=["sync-2"]),
        "orderly": consume(name_server, "cpp-orderly", 9, orderly=True),
        "broadcast": consume(name_server, "cpp-broadcast", 9, sends=True, message_model=MessageModel.BROADCASTING),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
