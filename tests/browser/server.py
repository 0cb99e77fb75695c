"""Server: a folder of pages over HTTP, with the header that Jenkins sends, or with none."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

JENKINS = "sandbox allow-same-origin; default-src 'none'; img-src 'self'; style-src 'self';"


class _Plain(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Jenkins(_Plain):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", JENKINS)
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # Jenkins has one
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


@contextlib.contextmanager
def serve(folder: Path, *, as_jenkins: bool) -> Iterator[str]:
    """Serve a folder; give its address."""
    handler = _Jenkins if as_jenkins else _Plain
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
