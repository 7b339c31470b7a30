"""Plain requests to a name server or a broker, without a client."""

import json
import socket
import struct

from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES

VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1000}


class Asking:
    """One connection to a name server."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), 10)
        self._file = self._socket.makefile("rb")

    def ask(self, name, body=None, version=479, **fields):
        """Send a request; return (code, fields, body) of the answer. Requests of the server are left out.

        name  of the request, or its code
        body  bytes, or a value for JSON
        """
        texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in fields.items()}
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self._socket.sendall(Command(CODES.get(name, name), texts, raw, 1, 0, None, "JAVA", version).encode())
        while not (answer := self._read()).is_answer:
            pass
        return answer.code, answer.fields, answer.body

    def _read(self):
        size, head = struct.unpack(">II", self._file.read(8))
        rest = self._file.read(size - 4)
        return Command.decode(head >> 24, rest[: head & 0xFFFFFF], rest[head & 0xFFFFFF :])

    def register(
        self, name, address, id=0, topics=("x", "y"), *, cluster="C", state=0, counter=1, filters=(), **fields
    ):
        table = topics if isinstance(topics, dict) else {topic: {} for topic in topics}
        default = {"readQueueNums": 4, "writeQueueNums": 5, "perm": 6, "topicSysFlag": 0, "order": False}
        wrapper = {
            "topicConfigTable": {topic: {"topicName": topic, **default, **data} for topic, data in table.items()},
            "dataVersion": {**VERSION, "counter": counter, "stateVersion": state},
        }
        return self.ask(
            "REGISTER_BROKER",
            {"topicConfigSerializeWrapper": wrapper, "filterServerList": list(filters)},
            brokerName=name, brokerAddr=address, clusterName=cluster, haServerAddr=f"{address}/ha", brokerId=id,
            **fields,
        )  # fmt: skip

    def close(self):
        self._file.close()
        self._socket.close()
