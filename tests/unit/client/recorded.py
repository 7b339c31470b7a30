"""A broker and name server that answer as RocketMQ 5.3.3 did when its answers were recorded."""

import asyncio
import json
import random
from pathlib import Path

from simulation import virtual

from rocketc.client.admin import Admin
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.server import Answer, Server

GOLDEN = Path(__file__).parents[2] / "golden" / "admin-5.3.3.jsonl"
NAME_SERVER, BROKER = "10.0.0.5:9876", "127.0.0.1:30911"
TOPIC, GROUP = "A_38ee962af21", "AG_38ee962af21"
ROUTED = "A_38ee962af21o"  # its route, with three queues, is that of other topics too


def answers():
    """The recorded exchanges."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if "answerCode" in entry]


class Recorded:
    """Answers as `others[code]` says, or with the recorded answer to the same request, or with code 3."""

    def __init__(self, others=()):
        self._answers = {(entry["code"], _key(entry["request"])): entry for entry in answers()}
        self.others, self.asked = dict(others), []
        self.codes = tuple(REQUESTS)

    def process(self, call):
        request = call.command
        self.asked.append((request.code, dict(request.fields)))
        if request.code in self.others:
            return self.others[request.code](request)
        entry = self._answers.get((request.code, _key(request.fields)))
        if entry is None and request.code == 105:
            entry = self._answers[request.code, _key({"topic": ROUTED})]
        if entry is None:
            return Answer(3, remark="not recorded")
        raw = Answer(entry["answerCode"], remark=entry.get("remark"), body=(entry.get("answerBody") or "").encode())
        if REQUESTS[request.code].answer:
            kinds = {field.name: field.kind for field in REQUESTS[request.code].answer}
            raw.values = {name: kinds[name].parse(text) for name, text in entry["answer"].items()}
        return raw


def _key(fields):
    return frozenset((name, text) for name, text in fields.items() if name not in ("lo", "acceptStandardJsonOnly"))


class Cluster:
    """Servers by address, on virtual time and a network in memory."""

    def __init__(self, **servers):
        self.chance = random.Random(1)
        self.servers = {name: Server([processor]) for name, processor in servers.items()}
        self.transports = []

    def connector(self, host, port):
        async def connect(factory):
            await asyncio.sleep(0.01)
            server = self.servers.get(f"{host}:{port}")
            if server is None:
                raise ConnectionRefusedError(111, "Connect call failed")
            one, _ = virtual.link(server.connection(), factory(), self.chance)
            self.transports.append(one)

        return connect

    def admin(self, addresses=NAME_SERVER):
        return Admin(addresses, connector=self.connector)


def ask(work, others=(), processor=None):
    """Run work(admin) at the recorded cluster; return its result and what was asked."""
    processor = processor or Recorded(others)

    async def main():
        cluster = Cluster(**{NAME_SERVER: processor, BROKER: processor})
        async with cluster.admin() as admin:
            return await work(admin)

    return virtual.run(main()), processor.asked
