"""Brokers that answer pulls on real sockets, as a test says."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import rocketc
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command, Form

FOUND, NOT_FOUND, NO_MATCHED, OFFSET_MOVED = 0, 19, 20, 21


class Stored(NamedTuple):
    """A record of a queue."""

    queue_id: int
    queue_offset: int
    phy_offset: int
    store_timestamp: int
    data: bytes


def stored(queue_id: int, queue_offset: int, phy_offset: int, store_timestamp: int, size: int = 10) -> Stored:
    data = rocketc.encode(
        "orders", b"x" * size, queue_id=queue_id, queue_offset=queue_offset, phy_offset=phy_offset,
        store_timestamp=store_timestamp,
    )  # fmt: skip
    return Stored(queue_id, queue_offset, phy_offset, store_timestamp, data)


def answer(request: Command, code: int, body: bytes, next_offset: int, form: Form = Form.JSON) -> bytes:
    """Return the frame that answers a pull."""
    fields = {"nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": "0", "suggestWhichBrokerId": "0"}
    return Command(code, fields, body, opaque=request.opaque, flag=1).encode(form)


class PullServer:
    """A broker with the records of some queues.

    queues  records by queue id, in the order of their offsets
    limit   returns how many messages the next answer has, at most
    chance  mixes the order of answers, and cuts them into pieces; None: it does neither
    change  change(number, request, frame) -> what is sent instead of the frame that answers request `number`;
            None: the connection is closed
    """

    def __init__(
        self,
        queues: Mapping[int, Sequence[Stored]],
        *,
        limit: Callable[[], int] = lambda: 32,
        chance: random.Random | None = None,
        change: Callable[[int, Command, bytes], bytes | None] = lambda number, request, frame: frame,
    ) -> None:
        self._queues, self._limit, self._chance, self._change = queues, limit, chance, change
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked: list[tuple[int, int, int]] = []  # queue id, offset, and the most messages of each request
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self._open: list[socket.socket] = []

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(one)
            self._threads.append(threading.Thread(target=self._serve, args=(one,), daemon=True))
            self._threads[-1].start()

    def _serve(self, one: socket.socket) -> None:
        decoder = FrameDecoder()
        try:
            while data := one.recv(1 << 16):
                frames = []
                for form, header, body in decoder.receive(data):
                    request = Command.decode(form, header, body)
                    frame = self._change(len(self.asked), request, self._answer(request, Form(form)))
                    if frame is None:
                        break
                    frames.append(frame)
                else:
                    if self._chance is not None:
                        self._chance.shuffle(frames)
                    for piece in self._pieces(b"".join(frames)):
                        one.sendall(piece)
                    continue
                one.sendall(b"".join(frames))
                break
        except OSError:
            pass
        finally:
            one.close()

    def _pieces(self, data: bytes) -> Sequence[bytes]:
        if self._chance is None or not data:
            return [data]
        cuts = sorted(self._chance.sample(range(len(data)), min(3, len(data))))
        return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _answer(self, request: Command, form: Form) -> bytes:
        fields = request.fields
        queue_id, offset, most = (int(fields[name]) for name in ("queueId", "queueOffset", "maxMsgNums"))
        self.asked.append((queue_id, offset, most))
        records = self._queues[queue_id]
        found = [record for record in records if record.queue_offset >= offset][: min(most, self._limit())]
        if not found:
            return answer(request, NOT_FOUND, b"", offset, form)
        return answer(request, FOUND, b"".join(one.data for one in found), found[-1].queue_offset + 1, form)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> PullServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
