"""A server on a real socket that answers as a test says."""

import contextlib
import json
import socket
import threading

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command, Flag

TABLE = {
    "bootTimestamp": "1", "brokerVersionDesc": "V5_3_3", "runtime": "[ 0 days, 1 hours, 2 minutes, 3 seconds ]",
    "putMessageTimesTotal": "100", "msgGetTotalTodayNow": "40", "commitLogMinOffset": "0", "commitLogMaxOffset": "9000",
    "putTps": "2.5 1234.7 ", "getTransferredTps": "0.0  ", "dispatchBehindBytes": "0", "commitLogDiskRatio": "0.18",
    "remainHowManyDataToFlush": "1.2 KiB", "putLatency99": "0.05", "putLatency999": "1.20",
    "earliestMessageTimeStamp": "-1",
}  # fmt: skip


class Server:
    """Answers each request with what `answer(code)` returns: a Command, bytes, or None for a closed connection."""

    def __init__(self, answer):
        self._answer, self.requests = answer, []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"rocketmq://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        decoder = FrameDecoder()
        with peer, contextlib.suppress(ConnectionResetError):
            while data := peer.recv(4096):
                for frame in decoder.receive(data):
                    request = Command.decode(*frame)
                    self.requests.append(request.code)
                    answer = self._answer(request.code)
                    if answer is None:
                        return
                    if isinstance(answer, Command):
                        answer.opaque, answer.flag = request.opaque, Flag.ANSWER
                        answer = answer.encode()
                    peer.sendall(answer)

    def close(self):
        self._listening.close()


def table(**changes):
    return Command(0, body=json.dumps({"table": {**TABLE, **changes}}).encode())
