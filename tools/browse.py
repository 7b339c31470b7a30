"""Write pictures of the site in a browser to docs/images: .venv/bin/python tools/browse.py [--all FOLDER]

It needs chromium (Debian: apt-get install chromium) and the built site (`make docs`). aiohttp and Pillow are already
installed for the tests. Option --all writes three pictures of every page, light, dark and narrow, for a review.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import io
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
SITE, IMAGES = ROOT / "build/site", ROOT / "docs/images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LARGEST = 150_000  # most bytes of a picture

# Picture -> page, width and height of the window, dark
KEPT = {
    "site-home": ("index.html", 1280, 900, False),
    "site-format": ("format.html#a-message-record", 1280, 900, False),
    "site-reference": ("reference/store.html#rocketc.MessageStore.put", 1280, 900, True),
    "site-notebook": ("notebooks/audit.html#what-was-different-on-that-day", 1280, 900, False),
    "site-narrow": ("howto/salvage.html", 420, 900, True),
}


class Browser:
    """A chromium without a window, controlled by its DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)

    async def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=30)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    async def picture(self, page: str, width: int, height: int, dark: bool) -> Image.Image:
        """Take a picture of a page in a window of this size, in 255 colors."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.tell("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.tell("Emulation.setEmulatedMedia", features=[scheme])
        name, _, anchor = page.partition("#")
        await self.open(name)
        await self.value("localStorage.clear()")  # the page stores light or dark there
        await self.tell("Page.reload")
        await self.loaded()
        if anchor:
            await self.value(f"location.hash = {'#' + anchor!r}")
        await asyncio.sleep(0.5)  # for animations
        shot = await self.tell("Page.captureScreenshot", format="png")
        image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
        return image.quantize(255, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)

    async def open(self, page: str) -> None:
        await self.tell("Page.navigate", url="about:blank")
        await self.tell("Page.navigate", url=f"file://{SITE}/{page}")
        await self.loaded()

    async def loaded(self) -> None:
        await asyncio.sleep(0.1)
        while (await self.value("document.readyState")) != "complete":
            await asyncio.sleep(0.05)

    async def value(self, expression: str) -> Any:
        return (await self.tell("Runtime.evaluate", expression=expression))["result"].get("value")


@contextlib.asynccontextmanager
async def opened(command: str) -> AsyncIterator[Browser]:
    """While entered, a browser without a window, with a temporary profile."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"]
        process = subprocess.Popen([command, *options, f"--user-data-dir={folder}"], stderr=subprocess.DEVNULL)
        try:
            port, deadline = Path(folder, "DevToolsActivePort"), time.monotonic() + 30
            while not port.exists() or not port.read_text().strip():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command} did not start")
                await asyncio.sleep(0.1)
            address = f"http://127.0.0.1:{port.read_text().split()[0]}"
            async with aiohttp.ClientSession() as session:
                async with session.put(f"{address}/json/new") as answer:
                    tab = await answer.json()
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Browser(socket)
        finally:
            process.terminate()
            process.wait(30)


async def take(command: str, kept: dict[str, tuple[str, int, int, bool]], target: Path) -> None:
    async with opened(command) as browser:
        for name, window in kept.items():
            file = target / f"{name}.png"
            (await browser.picture(*window)).save(file, optimize=True)
            print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


def installed() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="pictures of every page: light, dark and narrow")
    folder = parser.parse_args().all
    browser = installed()
    if browser is None:
        sys.exit("browse: chromium is not installed; on Debian: apt-get install chromium")
    if not (SITE / "index.html").exists():
        sys.exit("browse: the site is not built; run: make docs")
    kept = KEPT
    if folder is not None:
        names = [str(path.relative_to(SITE)) for path in sorted(SITE.rglob("*.html"))]
        names = [name for name in names if not name.startswith("project/") and name != "404.html"]
        ways = {"light": (1280, 1600, False), "dark": (1280, 1600, True), "narrow": (420, 1600, False)}
        kept = {
            f"{name.replace('/', '-')[:-5]}-{way}": (name, *window) for name in names for way, window in ways.items()
        }
    target = folder or IMAGES
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(browser, kept, target))
    large = [file.name for file in target.glob("*.png") if file.stat().st_size > LARGEST]
    if large and folder is None:
        sys.exit(f"browse: larger than {LARGEST // 1000} kB: {', '.join(large)}")


if __name__ == "__main__":
    main()
