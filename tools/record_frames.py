"""Write tests/golden/frames-5.3.3.jsonl: frames between RocketMQ's own clients, brokers and name servers.

    tools/record_frames.py

Needs Java and Maven. Proxies are between clients and name server, broker and name server, clients and broker. Some
scenarios run, once with headers in JSON and once with rocketmq.serialize.type=ROCKETMQ. Each line is a frame as it
passed: `link` (who talks to whom), `form`, `request` (the code of the request), `answer` (null, or the code of the
answer), `frame` (base64). At most three frames of each kind are kept, in their order.
"""

import asyncio
import base64
import collections
import json
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from interop.scenarios import Clients, JavaCluster  # noqa: E402
from net.proxy import Proxy  # noqa: E402

from rocketc.remoting._frames import FrameDecoder  # noqa: E402
from rocketc.remoting.command import Command, Form  # noqa: E402

OUTPUT = ROOT / "tests" / "golden" / "frames-5.3.3.jsonl"
OF_A_KIND = 3
LARGEST = 16 << 10  # bytes of a frame that is kept
SCENARIOS = (
    *(
        "client_config",
        "consumer_list",
        "heartbeat_v1",
        "lite_assign",
        "name_server",
        "offsets_refused",
        "pull_offsets",
    ),
    *(
        "pull_statuses",
        "pull_waits",
        "push_orderly_shared",
        "push_tags",
        "query_key",
        "query_offset_id",
        "query_offsets",
    ),
    *("query_unique_key", "queue_locks", "reply_to_nobody", "request_reply", "send_batch", "send_illegal_names"),
    *("send_oneway", "send_properties", "send_sync", "send_unknown_topic", "send_v1", "send_zlib"),
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def record(form: Form, folder: Path) -> list[dict[str, Any]]:
    """Play the scenarios with headers in this form; return the frames."""
    names, broker = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
    options = [f"-Drocketmq.serialize.type={form.name}"]
    # The broker listens on 127.0.0.1 and tells clients 127.0.0.2, where the proxy listens on the same port.
    async with Proxy(names) as to_names, Proxy(names) as of_broker, Proxy(broker, "127.0.0.2", broker[1]) as to_broker:
        settings = {"namePort": names[1], "brokerPort": broker[1], "broker.brokerIP1": "127.0.0.2"}
        settings["nameServer"] = "%s:%d" % of_broker.address
        cluster = await asyncio.to_thread(JavaCluster, "5.3.3", folder / "cluster", options, **settings)
        clients = await asyncio.to_thread(Clients, "5.3.3", folder / "clients", options)
        try:
            address = "%s:%d" % to_names.address
            for name, _, _ in await asyncio.to_thread(lambda: list(clients.run(SCENARIOS, address, threads=1))):
                print(form.name, name, file=sys.stderr)
        finally:
            clients.close()
            cluster.close()
    links = {"client to name server": to_names, "broker to name server": of_broker, "client to broker": to_broker}
    return [frame for link, proxy in links.items() for frame in chosen(link, proxy)]


def chosen(link: str, proxy: Proxy) -> list[dict[str, Any]]:
    """The first frames of each kind that passed through a proxy."""
    decoders: dict[tuple[int, bool], FrameDecoder] = collections.defaultdict(FrameDecoder)
    codes: dict[tuple[int, bool, int], int] = {}  # of requests, by connection, direction and number
    kept: collections.Counter[Any] = collections.Counter()
    found = []
    for connection, to_server, data in proxy.pieces:
        for form, header, body in decoders[connection, to_server].receive(data):
            command = Command.decode(form, header, body)
            if not command.is_answer:
                codes[connection, to_server, command.opaque] = command.code
                request, answer = command.code, None
            else:
                request, answer = codes.get((connection, not to_server, command.opaque), -1), command.code
            frame = b"".join(
                (
                    (4 + len(header) + len(body)).to_bytes(4, "big"),
                    (form << 24 | len(header)).to_bytes(4, "big"),
                    header,
                    body,
                )
            )
            kind = (request, answer, tuple(sorted(command.fields)) if answer is None else (command.remark or "")[:20])
            kept[kind] += 1
            if kept[kind] <= OF_A_KIND and len(frame) <= LARGEST:
                entry = {"link": link, "form": Form(form).name, "request": request, "answer": answer}
                found.append({**entry, "to_server": to_server, "frame": base64.b64encode(frame).decode()})
    return found


def main() -> None:
    frames = []
    for form in Form:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            frames += asyncio.run(record(form, Path(folder)))
    text = "".join(json.dumps(frame, separators=(",", ":")) + "\n" for frame in frames)
    OUTPUT.write_text(text)
    print(f"{OUTPUT.relative_to(ROOT)}: {len(frames)} frames, {len(text) >> 10} KiB")


if __name__ == "__main__":
    main()
