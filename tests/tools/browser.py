"""A page in headless Chromium, driven over its own debugging pipe: nothing beside the standard library is needed.

Chromium (``--remote-debugging-pipe``) reads commands of the DevTools protocol on file descriptor 3 and writes answers
and events on 4, each a JSON text that ends in a zero byte. Whatever a page asks the network for, and whatever it logs,
comes as an event.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 300.0


def chromium() -> str | None:
    """Where Chromium is; None where it is not installed."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Page:
    """A page that is open.

    Attributes:
        requests: addresses that were asked for.
        said: what the page logged, and errors of its scripts.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._left, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.said: list[str] = []

    def open(self, file: Path) -> None:
        """Shows a file, and waits until it is there."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=file.resolve().as_uri())
        ends = time.monotonic() + _SECONDS
        while self.value("document.readyState") != "complete" or self.value("location.href") == "about:blank":
            assert time.monotonic() < ends, "the page is not there"
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Presses a key: Tab, Enter, or a character."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"Tab": "", "Enter": "\r"}.get(key, key)
        code = codes.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def write(self, text: str) -> None:
        """Writes into the field that has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Clicks in the middle of the first element that is selected."""
        quoted = json.dumps(selector)
        self.value(f"document.querySelector({quoted}).scrollIntoView({{block: 'center', inline: 'center'}})")
        box = self.value(
            f"(() => {{ const box = document.querySelector({quoted}).getBoundingClientRect();"
            " return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def shoot(self, target: Path, *, whole: bool = False) -> None:
        """Writes what is seen as a PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        target.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.said.append(json.dumps(parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.said.append(json.dumps(parameters["entry"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._answers], [], [], _SECONDS)
            assert ready, "Chromium does not answer"
            part = os.read(self._answers, 1 << 20)
            assert part, "Chromium has ended"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A browser without a network of its own accord; its profile lies in a folder.

    Args:
        folder: that may be written to.
    """
    program = chromium()
    assert program is not None, "ask chromium() before"
    ours_read, theirs_write = os.pipe()
    theirs_read, ours_write = os.pipe()
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
    ]
    command = [program, *options, "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
    shell = f'exec "$@" 3<&{theirs_read} 4>&{theirs_write}'
    running = subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=(theirs_read, theirs_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_read)
    os.close(theirs_write)
    try:
        yield Page(ours_write, ours_read)
    finally:
        running.kill()
        running.wait()
        os.close(ours_read)
        os.close(ours_write)
