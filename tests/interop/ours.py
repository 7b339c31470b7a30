"""rocketc's side: stores opened with RocketMQ's settings, messages put and read with the field names of Peer.java.

`python -m interop.ours ROOT SETTINGS MESSAGES` puts all messages of a JSON file into a store and prints each answer as
a line. It is the writer that tests kill.
"""

import io
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from interop.peer import from_json
from support import compare, oracle

import rocketc
from rocketc.config import StoreConfig

Told = dict[str, Any]


def open_store(root: Path, settings: Mapping[str, object], *, read_only: bool = False) -> rocketc.MessageStore:
    """Open the store with RocketMQ's settings, as far as rocketc has them."""
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = StoreConfig.from_properties(io.StringIO(text))
    return rocketc.open(root, config=config, read_only=read_only)


def put(store: rocketc.MessageStore, planned: Iterable[Told]) -> Iterator[Told]:
    """Put messages and client batches; yields the store's answer to each."""
    for item in planned:
        first = item["batch"][0] if "batch" in item else item
        fields: Any = {
            "queue_id": first["queueId"],
            "born_timestamp": first["bornTimestamp"],
            "born_host": oracle.host_pair(first["bornHost"]),
            "store_host": oracle.host_pair(first["storeHost"]),
            "reconsume_times": first["reconsumeTimes"],
        }
        if "batch" in item:
            entries = [(entry["flag"], entry["body"], entry["properties"]) for entry in item["batch"]]
            result = store.put_batch(first["topic"], entries, **fields)
        else:
            others = dict(item["properties"])
            result = store.put(
                item["topic"],
                item["body"],
                tags=others.pop("TAGS", None),
                keys=others.pop("KEYS", None),
                properties=others,
                flag=item["flag"],
                sys_flag=item["sysFlag"],
                prepared_transaction_offset=item["preparedTransactionOffset"],
                **fields,
            )
        yield {
            "status": result.status.name,
            "ok": True,
            "phyOffset": result.phy_offset,
            "queueOffset": result.queue_offset,
            "size": result.size,
            "count": result.count,
            "msgId": result.msg_id,
            "storeTimestamp": result.store_timestamp,
        }


def scan(root: Path, *, unwrap: bool = True) -> list[Told]:
    """Every message of a store in log order, read by rocketc, with the field names of Peer.java.

    A torn record after the last message is ignored: RocketMQ does not overwrite what a killed process left there.
    """
    return [
        {
            **compare.stored(message),
            "bornHost": oracle.java_host(message.born_host),
            "storeHost": oracle.java_host(message.store_host),
            "body": message.stored_body,
        }
        for message in rocketc.scan(root, crc="full", errors="skip", unwrap=unwrap)
    ]


if __name__ == "__main__":
    root, settings, messages = sys.argv[1:]
    planned = [from_json(message) for message in json.loads(Path(messages).read_text())]
    store = open_store(Path(root), json.loads(settings))
    for answer in put(store, planned):
        print(json.dumps(answer), flush=True)
    sys.stdin.read()  # killed here at the latest
