"""Headless Chromium over the DevTools protocol, by pipe: JSON messages, each ended by NUL.

https://chromedevtools.github.io/devtools-protocol/
"""

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe",
]
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, " ": 32}
# What a page tells that it should not: any of it fails the test.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class Failure(Exception):
    """What was waited for did not come, or a page failed."""


def find():
    """The browser, if there is one; `ALARA_CHROMIUM` names another one."""
    named = os.environ.get("ALARA_CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser that ends with the `with` block."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="alara-page-", ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()
        # Out of the way of 3 and 4, which the browser reads and writes.
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1]))

        def place():
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=place, close_fds=False, start_new_session=True,
        )
        for end in (ours[0], theirs[1], read, write):
            os.close(end)
        self.write, self.read = ours[1], theirs[0]
        self.rest, self.number, self.pages, self.answers = b"", 0, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.command("Browser.close")
            self.process.wait(5)
        except (Failure, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def send(self, method, session=None, **params):
        """Sends a command; its number."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        return self.number

    def command(self, method, session=None, **params):
        """The result of a command."""
        number = self.send(method, session, **params)
        end = time.monotonic() + 20
        while number not in self.answers:
            self.pump(end - time.monotonic(), method)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def pump(self, seconds, what="an event"):
        """Takes what the browser says."""
        if not select.select([self.read], [], [], max(seconds, 0))[0]:
            raise Failure(f"the browser says nothing to {what}")
        data = os.read(self.read, 1 << 20)
        if not data:
            raise Failure("the browser ended")
        *messages, self.rest = (self.rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].event(message["method"], message["params"])

    def page(self, width=1200, height=800):
        """A new page with a storage of its own."""
        return Page(self, width, height)


class Page:
    """A page; `faults` is what it complained about, `answer` what it is told where it asks in a dialog."""

    def __init__(self, browser, width, height):
        self.browser = browser
        self.context = browser.command("Target.createBrowserContext")["browserContextId"]
        target = browser.command("Target.createTarget", url="about:blank", browserContextId=self.context)
        attached = browser.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        self.faults, self.requests, self.answer = [], [], ""
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")
        self.command("Emulation.setFocusEmulationEnabled", enabled=True)
        self.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        self.size(width, height)

    def close(self):
        """Closes the page, and forgets what it stored."""
        del self.browser.pages[self.session]
        self.browser.command("Target.disposeBrowserContext", browserContextId=self.context)

    def command(self, method, **params):
        return self.browser.command(method, self.session, **params)

    def event(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.faults.append(f"console: {params['args']}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            # A status that is no success is the server's, and told by the page.
            if params["entry"]["source"] != "network":
                self.faults.append(f"log: {params['entry']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.browser.send("Page.handleJavaScriptDialog", self.session, accept=True, promptText=self.answer)
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width, height=800):
        self.command("Emulation.setDeviceMetricsOverride",
                     width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, dark):
        value = "dark" if dark else "light"
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def open(self, url):
        self.command("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'"
                  " && document.querySelector('#model option, #token-dialog[open]')")

    def reload(self):
        self.js("window.old = true")
        self.command("Page.reload")
        self.wait("!window.old && document.readyState === 'complete'")

    def js(self, expression):
        """The value of an expression; of a promise, what it gives."""
        answer = self.command("Runtime.evaluate", expression=expression,
                              awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise Failure(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=10):
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while True:
            # While a page is loaded, there may be nothing to ask.
            try:
                if self.js(f"!!({expression})"):
                    return
                why = ""
            except Failure as failure:
                why = f" ({failure})"
            if time.monotonic() > end:
                raise Failure(f"never true: {expression}{why}")
            time.sleep(0.02)

    def type(self, text):
        self.command("Input.insertText", text=text)

    def key(self, key, control=False, shift=False):
        event = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key],
                 "modifiers": 2 * control + 8 * shift}
        text = {"Enter": "\r", " ": " "}.get(key)
        down = {"type": "keyDown", "text": text} if text and not control else {"type": "rawKeyDown"}
        self.command("Input.dispatchKeyEvent", **down, **event)
        self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def shot(self, path):
        """Writes a picture of what is seen."""
        import base64
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.command("Page.captureScreenshot")["data"]))
