"""A local server with one archive of the true layout: ranges, breaks and stalls as a test asks for."""

import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.paper.generate import rw_samples, write_rw


class Server(ThreadingHTTPServer):
    """Serves `body` at every path, with ranges; after `break_after` bytes a connection waits for `stall`, then ends."""

    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.break_after, self.ranges, self.asked = body, None, True, []
        self.stall = None
        self.url = f"http://127.0.0.1:{self.server_port}/1.%20archive.zip"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        wanted, body = self.headers.get("Range"), self.server.body
        self.server.asked.append(wanted)
        if self.path == "/absent":
            return self.send_error(404)
        start = int(wanted[6:-1]) if wanted and self.server.ranges else 0
        if start >= len(body) and start:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = len(body) if self.server.break_after is None else start + self.server.break_after
        self.wfile.write(body[start:end])
        if self.server.stall:
            self.server.stall.wait(20)
        return self.connection.close() if end < len(body) else None

    def log_message(self, *words):
        pass


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def archive(tmp_path):
    """The true layout: folders, a read-me, what a Mac adds."""
    made = tmp_path / "made"
    made.mkdir()
    names = ("RW9", "RW10")
    mats = {f"{name}.mat": write_rw(made / f"{name}.mat", rw_samples(steps=60)).read_bytes() for name in names}
    inside = {f"DataSet_2Post/data/Matlab/{name}": content for name, content in mats.items()}
    return zipped({**inside, "DataSet_2Post/README.txt": "read me", "__MACOSX/._RW9.mat": b"junk"})


@pytest.fixture
def server(archive):
    with Server(archive) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
