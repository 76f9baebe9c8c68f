"""A browser without a window, and pages of a folder that a function in JavaScript looks at."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = next(filter(None, map(shutil.which, NAMES)), None)
"""The program of a browser; None: there is none."""

_HARNESS = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" style="border:0;height:900px"></iframe>
<script>
const frame = document.getElementById("frame")
const wait = (ms) => new Promise((done) => setTimeout(done, ms))
const open = (page) => new Promise((done) => { frame.onload = () => done(frame.contentWindow); frame.src = page })
async function until(condition, ms = 10000) {
  for (let past = 0; past < ms; past += 25) { if (condition()) return true; await wait(25) }
  return false
}
const look = %s;
(async () => {
  let found
  try { found = await look(%s) } catch (error) { found = { error: String(error.stack || error) } }
  await fetch("/found", { method: "POST", body: JSON.stringify(found) })
})()
</script>"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    harness = ""

    def do_GET(self) -> None:
        if self.path in self.server.absent:
            self.send_error(404)
            return
        if self.path != "/harness":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.harness.encode())

    def do_POST(self) -> None:
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.answered.set()

    def log_message(self, *arguments: object) -> None:
        pass


def visit(
    folder: Path, scratch: Path, look: str, given: object, absent: Collection[str] = (), seconds: float = 500
) -> Any:
    """What ``look(given)`` gives, an asynchronous function in JavaScript with ``frame``, ``open(page)``, ``wait(ms)``
    and ``until(condition)``; pages are named from the root of the folder. Raises AssertionError with its error.
    absent: what the server does not give, though it is there.
    """
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
    server.harness = _HARNESS % (look, json.dumps(given))
    server.absent, server.answered, server.found = absent, threading.Event(), None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/harness"
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    flags += ["--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows"]  # timers in time
    command = [FOUND, *flags, f"--user-data-dir={scratch}", "--remote-debugging-port=0", address]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert server.answered.wait(seconds), f"the browser gave no answer in {seconds} s"
    finally:
        browser.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            browser.wait(10)
        browser.kill()
        server.shutdown()
        server.server_close()
    found = server.found
    assert not (isinstance(found, dict) and "error" in found), found
    return found
