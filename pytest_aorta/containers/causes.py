"""Causes: the words of an engine as one sentence, with the next step where the words are known."""

from __future__ import annotations

import re

CHATTER = re.compile(
    r"(?m)^\s*(See '.*--help'\.?|Run '.*--help' for more information|(Error: )?failed to start containers: .*"
    r"|time=\"[^\"]*\" level=(?:info|warning) .*|sudo: unable to resolve host .*)\s*$"
)
LONG_NAME = re.compile(r'\bcontainer "?[0-9a-f]{64}"?')
PREFIX = re.compile(r"^(?:docker: |Error: |Error response from daemon: |podman: )+")
MOST_CHARACTERS = 700
GONE = re.compile(
    r"no such container|no container with (name or )?id|removal of container .* is already in progress", re.IGNORECASE
)
ENDED = re.compile(r"container \S+ is not running|can only create exec sessions on running containers", re.IGNORECASE)
NO_IMAGE = re.compile(
    r"no such image|image not known|failed to find image|unable to find .* in local storage", re.IGNORECASE
)
NOT_PERMITTED = re.compile(r"permission denied|newuidmap|newgidmap", re.IGNORECASE)
NOT_DONE = re.compile(r"`(?:docker|podman)\b[^`]*` was not done within ")
OURS_TO_END = re.compile(r"^error during connect: .*:$")  # a client that we ended says this
NO_PROGRAM = re.compile(r"cannot run '.*': No such file")

_LOAD = "or load the image there yourself (docker load, podman load)"
_NEXT_STEPS = tuple(
    (re.compile(words, re.IGNORECASE), next_step)
    for words, next_step in (
        (
            r"`docker\b[^`]*` was not done within",
            "see whether docker's daemon answers there at all (`docker info`), and restart it if not",
        ),
        (r"`podman\b[^`]*` was not done within", "see whether podman answers there at all (`podman info`)"),
        (
            r"docker daemon at \S+: permission denied",
            "this user may not open the daemon's socket: add it to the group that owns it (docker)",
        ),
        (
            (
                r"cannot connect to the docker daemon|failed to connect to the docker api|connection aborted"
                r"|remotedisconnected|while fetching server api version"
            ),
            "is the daemon running? Start it (systemctl start docker)",
        ),
        (
            r"setting rlimits?\b",
            (
                "set limits that this machine may give in container.runtime.args.ulimit (memlock=65536 instead of the "
                "default, memlock=-1), or let its engine raise them"
            ),
        ),
        (
            r"unable to apply caps|apply capabilities",
            "set privileged to false: the engine may not give all capabilities",
        ),
        (r"no space left", "make room where the engine keeps its images (docker system df, podman system df)"),
        (r"toomanyrequests|rate limit", "the registry wants a login: set container.runtime.args.registry, or wait"),
        (r"x509|certificate", f"have the daemon trust the registry's certificate, {_LOAD}"),
        (
            r"manifest unknown|manifest for .* not found|tag does not exist",
            "the registry has no such tag or digest: check container.image",
        ),
        (
            r"short-name .* did not resolve",
            "podman looks for it in no registry unless told: begin container.image with one (docker.io/...)",
        ),
        (r"no matching manifest", "the image is not made for this machine's architecture: check container.image"),
        (
            r"unauthorized|denied: |access denied|authentication required|no basic auth|(?:incorrect|invalid) username",
            "check container.image, and the login in container.runtime.args.registry",
        ),
        (
            (
                r"no such host|dial tcp|connection refused|i/o timeout|tls handshake|network is unreachable"
                r"|server misbehaving|temporary failure in name resolution|client\.timeout"
            ),
            f"the registry cannot be reached from there: check container.image, network and daemon's proxy, {_LOAD}",
        ),
        (r"could not select device driver", "install NVIDIA's container toolkit there, or do without gpus"),
        (r"unresolvable cdi|cdi device", "make the CDI file there (nvidia-ctk cdi generate)"),
        (
            r"error gathering device information|no such device|/dev/\S+: no such file",
            "name only devices that the machine has in container.runtime.args.devices",
        ),
        (r"unable to find group", "the image has no group of that name: give its number in group_add"),
        (r"unable to find user|no matching entries in passwd", "the image has no user of that name: give its number"),
        (r"bind source path does not exist|statfs .* no such file", "make the folder there, or correct the volumes"),
        (r"is already in use", "somebody has just taken it: choose another container.name"),
        (
            r"exec: \\?\"?sleep|\"sleep\": executable file|executable file `sleep`",
            "the image needs a `sleep` program (coreutils or busybox) on its PATH, which container.env.PATH replaces",
        ),
        (r"a password is required|a terminal is required", "sudo must not ask for a password there"),
        (r"invalid reference format", "check container.image"),
    )
)


def cause(text: str) -> str:
    """Give what an engine said as one sentence."""
    told = CHATTER.sub("", text)
    lines = (told if told.strip() else text).splitlines()
    words = " ".join(PREFIX.sub("", line.strip()) for line in lines if line.strip())
    words = LONG_NAME.sub("the container", words)
    words = words[:MOST_CHARACTERS].rstrip(". ") or "it failed without a word"
    next_step = next((step for pattern, step in _NEXT_STEPS if pattern.search(words)), "")
    return f"{words}; {next_step}" if next_step else words


def not_done(words: str, timeout_s: float, said: str = "") -> str:
    """Say that a command of an engine's client was not done in time; `said` is what it wrote meanwhile."""
    text = f"`{words}` was not done within {timeout_s:g} s"
    if said.strip() and not OURS_TO_END.match(said.strip()):
        return f"{text}, its last words: {cause(said)}"
    return cause(text)
