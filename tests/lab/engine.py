"""A host's Docker daemon, asked from outside through its socket: no client program, so nothing of ours in the host."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plan import PATH
from .processes import LabError

IMAGE = "lab/machine:1"
EMPTY_ARCHIVE = bytes(10240)


@dataclass(frozen=True)
class Container:
    """One container, running or not."""

    name: str
    image: str
    state: str
    labels: dict[str, str]


def read_podman(text: str) -> list[Container]:
    """Read what `podman ps --format=json` prints."""
    return [
        Container(each["Names"][0], each["Image"], each["State"], each["Labels"] or {}) for each in json.loads(text)
    ]


class Engine:
    """The daemon behind one socket."""

    def __init__(self, socket_path: Path, *, timeout_s: float = 10) -> None:
        self._path = socket_path
        self._timeout_s = timeout_s

    @property
    def answers(self) -> bool:
        try:
            return self._ask("GET", "/_ping") == b"OK"
        except (OSError, http.client.HTTPException, LabError):
            return False

    def containers(self) -> list[Container]:
        return [
            Container(each["Names"][0].removeprefix("/"), each["Image"], each["State"], each["Labels"] or {})
            for each in self._ask_json("GET", "/containers/json?all=1")
        ]

    def image_folder(self) -> str:
        """Where the daemon keeps the only layer of `lab/machine:1`, which is made empty when it is not there."""
        tags = [tag for image in self._ask_json("GET", "/images/json") for tag in image["RepoTags"] or ()]
        if IMAGE not in tags:
            repo, tag = IMAGE.split(":")
            changes = [("changes", f"ENV PATH={PATH}"), ("changes", 'CMD ["bash"]')]
            query = urllib.parse.urlencode([("fromSrc", "-"), ("repo", repo), ("tag", tag), *changes])
            self._ask("POST", f"/images/create?{query}", EMPTY_ARCHIVE)
        return str(self._ask_json("GET", f"/images/{IMAGE}/json")["GraphDriver"]["Data"]["UpperDir"])

    def _ask_json(self, method: str, url: str) -> Any:
        return json.loads(self._ask(method, url))

    def _ask(self, method: str, url: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection("docker", timeout=self._timeout_s)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(self._timeout_s)
            connected.connect(str(self._path))
            connection.sock = connected
            connection.request(method, url, body, {"Content-Type": "application/x-tar"} if body else {})
            response = connection.getresponse()
            answer = response.read()
        if response.status >= 300:
            raise LabError(f"docker {method} {url}: {response.status} {answer.decode(errors='replace').strip()}")
        return answer
