"""Headless Chromium over its DevTools pipe: no driver, no library, one page.

Debian: apt-get install chromium; `make setup` does that where it may.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HELP = "Chromium is not installed: `make setup` installs it, or apt-get install chromium"


class Browser:
    """One page; `console` collects its errors, `requests` every address it asked for."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        assert program, HELP
        self.folder = tempfile.mkdtemp(prefix="safedial-browser-")
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        words += ["--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={self.folder}"]
        reads, self._out = os.pipe()
        self._in, writes = os.pipe()
        shell = f'exec "$0" "$@" 3<&{reads} 4>&{writes}'
        command = ["bash", "-c", shell, program, *words, "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(reads, writes), stderr=subprocess.DEVNULL)
        os.close(reads)
        os.close(writes)
        self._buffer, self._count, self._session = b"", 0, None
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """One command, and its result; what happens meanwhile is noted."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser went away"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, told: dict[str, Any]) -> None:
        method, said = told.get("method"), told.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.console.append(json.dumps(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.console.append(said["entry"]["text"])

    def look(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """The window's size, and whether the reader prefers dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go there, and wait until the page is read."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        told = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, script: str, *, wanted: Callable[[Any], Any] = bool, seconds: float = 20.0) -> Any:
        """The expression's value as soon as it is what is wanted."""
        end = time.monotonic() + seconds
        while not wanted(value := self.run(script)):
            assert time.monotonic() < end, f"{script} is still {value!r}; errors: {self.console}"
            time.sleep(0.05)
        return value

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self.folder, ignore_errors=True)
