"""Pages as a real browser shows them: Chromium without a window, driven through pipes."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-extensions", "--mute-audio",
)  # fmt: skip
CODES = {"Backspace": 8, "Enter": 13, "Escape": 27, "Tab": 9}  # of keys that are no letter
TIMEOUT_S = 60  # for an answer, on a machine that does much else


# The least contrast of a text with what is behind it (WCAG 2.2, 1.4.3, asks for 4.5 at level AA).
CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


class Chromium:
    """A browser that takes commands of the DevTools protocol as zero-terminated JSON over two pipes."""

    def __init__(self, profile: Path) -> None:
        replies, self._theirs_out = os.pipe()
        self._theirs_in, commands = os.pipe()
        self._replies, self._commands = os.fdopen(replies, "rb", buffering=0), os.fdopen(commands, "wb", 0)
        # The browser reads from its descriptor 3 and writes to 4; a plain sh knows none above 9.
        redirect = f'exec "$0" "$@" 3<&{self._theirs_in} 4>&{self._theirs_out}'
        arguments = (*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank")
        self._process = subprocess.Popen(
            ("bash", "-c", redirect, str(PROGRAM), *arguments),
            pass_fds=(self._theirs_in, self._theirs_out),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(self._theirs_in)
        os.close(self._theirs_out)
        self._number, self._rest, self.events = 0, b"", list[dict[str, Any]]()

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._replies.close()
        self._commands.close()

    def call(self, method: str, session: str | None = None, **values: object) -> dict[str, Any]:
        """The result of a command; events that come meanwhile are kept."""
        self._number += 1
        number = self._number
        message: dict[str, object] = {"id": number, "method": method, "params": values}
        self._commands.write(json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("id") == number:
                assert "error" not in found, found["error"]
                return found["result"]
            self.events.append(found)

    def wait(self, method: str) -> None:
        """Until an event of this name has come."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._message())

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = self._replies.read(1 << 16)
            assert block, "Chromium ended"
            self._rest += block
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)


class Page:
    """A file in a browser, at a width and in light or dark."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **values: object) -> dict[str, Any]:
        """The result of a command for this page."""
        return self.browser.call(method, self.session, **values)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def show(self, *, width: int, scheme: str = "light", height: int = 900) -> None:
        """Shows the page in a window of this width (pixels)."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 600,
        )  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def choose(self, selector: str, files: list[Path]) -> None:
        """Chooses files in an input of the page, as in the dialog that it opens."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def press(self, key: str) -> None:
        typed = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        code = CODES.get(key, ord(key[0].upper()))
        for kind, text in (("keyDown", typed), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def wait_for(self, expression: str) -> None:
        """Until an expression of JavaScript is true."""
        until = time.monotonic() + TIMEOUT_S
        while not self.evaluate(expression):
            assert time.monotonic() < until, f"{expression} did not become true"
            time.sleep(0.05)

    def picture(self, clip: dict[str, float] | None = None) -> bytes:
        """The page as PNG, or a part of it: x, y, width and height in pixels, and its scale."""
        part = {"clip": clip} if clip else {}
        return base64.b64decode(
            self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **part)["data"]
        )

    def printed(self) -> bytes:
        """What is printed, as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def messages(self) -> list[str]:
        """What stands in the console: messages, exceptions and what the browser refused."""
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [json.dumps(event["params"]) for event in self.browser.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        events = [event for event in self.browser.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in events]


@contextmanager
def opened(address: Path | str, profile: Path) -> Iterator[Page]:
    """A page as the browser shows it; a file with the network off."""
    with Chromium(profile) as browser:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(browser, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        if isinstance(address, Path):
            page.call(
                "Network.emulateNetworkConditions",
                offline=True,
                latency=0,
                downloadThroughput=0,
                uploadThroughput=0,
            )
            address = address.resolve().as_uri()
        page.call("Page.navigate", url=address)
        browser.wait("Page.loadEventFired")
        time.sleep(0.2)  # for what a page asks for once it is there
        yield page
