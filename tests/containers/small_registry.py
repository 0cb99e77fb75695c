"""A registry with one empty image and one user, for one host: `python small_registry.py PORT PASSWORD`."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import json
import sys

USER = "reader"
MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
TAR = bytes(20480)  # an empty archive, of another size than that of the lab's image, whose layer it would be
LAYER = gzip.compress(TAR, mtime=0)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


CONFIG = json.dumps(
    {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [digest(TAR)]},
        "history": [],
    }
).encode()
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(CONFIG),
            "digest": digest(CONFIG),
        },
        "layers": [
            {
                "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                "size": len(LAYER),
                "digest": digest(LAYER),
            }
        ],
    }
).encode()
DIGEST = digest(MANIFEST)
ANSWERS = {
    "/v2/": b"{}",
    "/v2/empty/manifests/1": MANIFEST,
    f"/v2/empty/manifests/{DIGEST}": MANIFEST,
    f"/v2/empty/blobs/{digest(CONFIG)}": CONFIG,
    f"/v2/empty/blobs/{digest(LAYER)}": LAYER,
}


class Handler(http.server.BaseHTTPRequestHandler):
    expected = ""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != self.expected:
            self._answer(401, b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}')
        elif self.path in ANSWERS:
            self._answer(200, ANSWERS[self.path])
        else:
            self._answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}')

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="small"')
        kind = MANIFEST_TYPE if body is MANIFEST else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Docker-Content-Digest", digest(body))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


if __name__ == "__main__":
    Handler.expected = "Basic " + base64.b64encode(f"{USER}:{sys.argv[2]}".encode()).decode()
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
