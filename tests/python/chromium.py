"""Debian's Chromium without a window, driven over a pipe by its own protocol (CDP): no package, no port."""
import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile


def path():
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    """One browser, one page. Every call waits for its answer."""

    def __init__(self, *flags):
        self.folder = tempfile.mkdtemp(prefix="tandem-chromium-")
        to_browser, self.pipe_out = os.pipe()
        self.pipe_in, from_browser = os.pipe()

        def descriptors():   # the protocol wants them as 3 and 4, which may be one of the two
            ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (to_browser, from_browser)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)
        self.process = subprocess.Popen(
            [path(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
             "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder}", *flags, "about:blank"],
            preexec_fn=descriptors, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session, self.errors = b"", 0, None, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.status = None

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.pipe_out)
        os.close(self.pipe_in)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self):
        while b"\0" not in self.buffer:
            more = os.read(self.pipe_in, 1 << 20)
            if not more:
                raise RuntimeError("chromium has ended")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def _event(self, message):
        name, value = message.get("method"), message.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(value["exceptionDetails"])[:600])
        elif name == "Log.entryAdded" and value["entry"]["level"] == "error":
            self.errors.append(value["entry"]["text"] + " " + value["entry"].get("url", ""))
        elif name == "Network.responseReceived" and value["type"] == "Document":
            self.status = value["response"]["status"]

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.pipe_out, json.dumps(request).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._event(message)

    def open(self, url):
        """Returns the status of the page, once it is loaded."""
        self.status, self.errors = None, []
        self.call("Page.navigate", url=url)
        while True:
            message = self._read()
            self._event(message)
            if message.get("method") == "Page.loadEventFired":
                return self.status

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:600])
        return answer["result"].get("value")

    def wait_until(self, condition, seconds=600):
        """The page itself looks, at every change of the clock it draws by."""
        return self.ask(f"""new Promise((yes, no) => {{ const end = performance.now() + {seconds * 1000};
            const look = () => {{ try {{ if ({condition}) return yes(true); }} catch (e) {{ }}
              performance.now() > end ? no(new Error({json.dumps("waited in vain for " + condition)})) : setTimeout(look, 20); }}; look(); }})""")

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, file):
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]))
