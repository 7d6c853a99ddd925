"""Open pages of a site in headless Chromium: screenshots at desktop and phone width, light and dark, and what the console says.

    python tests/look_at_site.py SITE/index.html SITE/studies/NAME.html --out shots

Prints a line a view; exits 1 where a page logged an error, or is wider than its window.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

SIZES = {"desktop": (1280, 900, False), "phone": (390, 844, True)}


@dataclass
class Tab:
    """One page over Chrome's DevTools protocol."""

    socket: aiohttp.ClientWebSocketResponse
    errors: list[str] = field(default_factory=list)
    _count: int = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, keep what the console says meanwhile, return the answer."""
        self._count += 1
        number = self._count
        await self.socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self.socket.receive_json(timeout=60)
            if message.get("id") == number:
                return message.get("result", {"error": message.get("error")})
            self._note(message)

    async def wait_for(self, event: str) -> None:
        """Until an event comes."""
        while (message := await self.socket.receive_json(timeout=60)).get("method") != event:
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.errors.append(params["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        if message.get("method") == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}:
            self.errors.append(str(params["args"]))


async def look(tab: Tab, page: Path, out: Path, *, whole: bool) -> int:
    """Every size and scheme of a page; returns how many views had something wrong."""
    page.resolve(strict=True)
    bad = 0
    for size, (width, height, mobile) in SIZES.items():
        for scheme in ("light", "dark"):
            tab.errors.clear()
            await tab.ask(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
            )
            await tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            await tab.ask("Page.navigate", url=page.resolve().as_uri())
            await tab.wait_for("Page.loadEventFired")
            wide = await tab.ask("Runtime.evaluate", expression="document.documentElement.scrollWidth")
            scroll = wide["result"]["value"]
            shot = await tab.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
            file = out / f"{page.resolve().parent.name}-{page.stem}-{size}-{scheme}.png"
            file.write_bytes(base64.b64decode(shot["data"]))
            problems = [*tab.errors, *([f"{scroll} pixels wide in {width}"] if scroll > width else [])]
            print(f"{file}: {'; '.join(problems) or 'nothing in the console, fits'}")
            bad += bool(problems)
    return bad


async def main(pages: list[Path], out: Path, *, whole: bool) -> int:
    """Start the browser, look at each page, end it."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        browser = await asyncio.create_subprocess_exec(
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--hide-scrollbars",
            f"--user-data-dir={profile}", "about:blank", stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert browser.stderr is not None
            while not (found := re.search(rb"ws://([\d.:]+)/", await asyncio.wait_for(browser.stderr.readline(), 30))):
                pass
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://{found[1].decode()}/json") as answer:
                    targets = await answer.json()
                url = next(one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page")
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    tab = Tab(socket)
                    for domain in ("Page", "Log", "Runtime"):
                        await tab.ask(f"{domain}.enable")
                    return sum([await look(tab, page, out, whole=whole) for page in pages])
        finally:
            browser.terminate()
            await browser.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("shots"))
    parser.add_argument("--whole", action="store_true", help="the whole page, not only the first screen")
    given = parser.parse_args()
    sys.exit(1 if asyncio.run(main(given.pages, given.out, whole=given.whole)) else 0)
