"""A folder served over HTTP on 127.0.0.1, with byte ranges; counts the bytes sent, and fails on demand."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Server(ThreadingHTTPServer):
    """The server, and its settings.

    folder   the folder to serve
    sent     bytes of files that were sent
    ranges   False: a Range is ignored, as simple servers do
    accepts  the value of Accept-Ranges, if the header is sent
    fails    a status for every request
    says     the reason phrase of that status
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.sent = 0
        self.ranges = True
        self.accepts: str | None = None
        self.fails: int | None = None
        self.says: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(SimpleHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, directory=str(args[2].folder))

    def log_message(self, *args: Any) -> None:
        pass

    def end_headers(self) -> None:
        if self.server.accepts:
            self.send_header("Accept-Ranges", self.server.accepts)
        super().end_headers()

    def send_head(self) -> Any:
        if self.server.fails:
            self.send_error(self.server.fails, self.server.says)
            return None
        return super().send_head()

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if asked is None or not self.server.ranges or self.server.fails or not path.is_file():
            super().do_GET()
            return
        size = path.stat().st_size
        start, stop = int(asked[1]), min(int(asked[2]) + 1, size)
        if start >= stop:
            self.send_error(416)
            return
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(stop - start)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.server.sent += len(data)
        self.wfile.write(data)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
