"""Commands: what the node program can be asked; docs/node-protocol.md describes each with its answer."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from typing import Callable

from . import archives, files, kernel, marks, ports
from .devices import devices
from .endings import Ending
from .facts import clock, facts
from .processes import marked
from .requests import Answer, CommandError, Request, expanded
from .service import Service
from .state import Reaping, alive
from .undoings import TIMEOUT_S, Undoing

LEAVE_GRACE_S = 5.0


def _ping(node: Service, request: Request) -> Answer:
    return asdict(node.wire.assembler.counts)


def _facts(node: Service, request: Request) -> Answer:
    return facts()


def _devices(node: Service, request: Request) -> None:
    node.work(request, lambda: devices(check=request.deadline.check))


def _clock(node: Service, request: Request) -> Answer:
    return clock()


def _prepare(node: Service, request: Request) -> None:
    path = request.args.path("path")
    node.work(request, lambda: files.prepare(path, own=node.folder.path))


def _remove(node: Service, request: Request) -> None:
    path = request.args.path("path")
    node.work(request, lambda: files.remove(path))


def _run(node: Service, request: Request) -> None:
    args = request.args
    node.capture(
        args.texts("argv"),
        request.answer,
        cwd=args.path("cwd", None),
        env=args.mapping("env", (str, type(None)), "a string or null"),
        given=args.text("input", ""),
        timeout_s=args.number("timeout_s", max(1.0, request.deadline.seconds - 3.0)),
    )


def _start(node: Service, request: Request) -> Answer:
    args = request.args
    return node.groups.start(
        args.text("name"),
        args.texts("argv"),
        cwd=args.path("cwd"),
        env=args.mapping("env", (str, type(None)), "a string or null"),
        log=args.path("log"),
        follow=args.flag("follow", default=False),
    )


def _open(node: Service, request: Request) -> Answer:
    args = request.args
    return node.relays.open(
        args.text("name"),
        args.texts("argv"),
        cwd=args.path("cwd", None),
        env=args.mapping("env", (str, type(None)), "a string or null"),
    )


def _tell(node: Service, request: Request) -> Answer:
    relay = node.relays.known(request.args.text("name"))
    text = request.args.text("data", "")
    if text:
        relay.tell(text)
    if request.args.flag("end", default=False):
        relay.end_input()
    return {}


def _shut(node: Service, request: Request) -> None:
    relay = node.relays.known(request.args.text("name"))
    if not relay.running:
        request.answer({"left": []})
        return

    def done(endings: dict[str, Ending]) -> None:
        request.answer({"left": sorted({pid for ending in endings.values() for pid in ending.left})})

    node.end([relay.group_name], request.args.number("grace_s", 5.0), done)


def _stop(node: Service, request: Request) -> None:
    names = request.args.texts("names") if request.args.given("names") else None

    def done(endings: dict[str, Ending]) -> None:
        left = sorted({pid for ending in endings.values() for pid in ending.left})
        request.answer({"stopped": {name: ending.outcome for name, ending in endings.items()}, "left": left})

    node.end(names, request.args.number("grace_s", 10.0), done)


def _processes(node: Service, request: Request) -> Answer:
    return node.groups.processes()


def _marked(node: Service, request: Request) -> Answer:
    return {"threads": marked(request.args.text("token"))}


def _signal(node: Service, request: Request) -> Answer:
    args = request.args
    name = args.text("signal")
    number = getattr(signal, "SIG" + name, None)
    if not isinstance(number, signal.Signals):
        raise CommandError("bad_request", f"signal: {name!r} is no signal, expected a name such as USR1 or TERM")
    return node.groups.signal(args.text("name"), number, args.flag("catching_only", default=True))


def _stat(node: Service, request: Request) -> None:
    paths, with_hash = request.args.texts("paths"), request.args.flag("hash", default=False)
    node.work(request, lambda: files.describe(paths, with_hash, request.deadline.check))


def _hash_tree(node: Service, request: Request) -> None:
    root, exclude = request.args.path("root"), request.args.texts("exclude", [])

    def work() -> Answer:
        sha256, count = files.tree_digest(root, exclude, request.deadline.check)
        return {"sha256": sha256, "count": count}

    node.work(request, work)


def _unpack(node: Service, request: Request) -> None:
    archive, into, sha256 = request.args.path("archive"), request.args.path("into"), request.args.text("sha256")
    node.work(request, lambda: archives.unpack(archive, sha256, into, request.deadline.check))


def _pack(node: Service, request: Request) -> None:
    root, archive, names = request.args.path("root"), request.args.path("archive"), request.args.texts("files")
    node.work(request, lambda: archives.pack(root, names, archive, request.deadline.check))


def _find(node: Service, request: Request) -> None:
    args = request.args
    root, since_ns = args.path("root"), int(args.number("since_ns", 0))
    folders, names, exclude_dirs = (args.texts(name, []) for name in ("folders", "names", "exclude_dirs"))
    known = args.mapping("known", int, "a time in ns") if args.given("known") else None
    with_print, skip_closed = (args.flag(name, default=False) for name in ("print", "skip_closed"))
    depth = int(args.number("depth")) if args.given("depth") else None
    node.work(
        request,
        lambda: files.find(
            root,
            folders=folders,
            names=names,
            since_ns=since_ns,
            exclude_dirs=exclude_dirs,
            known=known,
            with_print=with_print,
            depth=depth,
            skip_closed=skip_closed,
            check=request.deadline.check,
        ),
    )


def _give(node: Service, request: Request) -> None:
    args = request.args
    paths = [expanded(path) for path in args.texts("paths")]
    uid, gid = int(args.number("uid")), int(args.number("gid"))
    node.work(request, lambda: files.give(paths, uid, gid, request.deadline.check))


def _read_tail(node: Service, request: Request) -> None:
    path, max_bytes = request.args.path("path"), int(request.args.number("max_bytes", 65536))
    node.work(request, lambda: files.read_tail(path, max_bytes))


def _offer(node: Service, request: Request) -> Answer:
    return node.offers.offer(int(request.args.number("port", 0)))


def _withdraw(node: Service, request: Request) -> Answer:
    return node.offers.withdraw(int(request.args.number("port")))


def _reach(node: Service, request: Request) -> None:
    address, port = request.args.text("address"), int(request.args.number("port"))
    timeout_s = request.args.number("timeout_s", 10.0)
    node.work(request, lambda: ports.reach(address, port, timeout_s))


def _hold(node: Service, request: Request) -> Answer:
    return node.holds.take(request.args.path("path"))


def _mark(node: Service, request: Request) -> None:
    path, name = request.args.path("path"), request.args.text("name")
    node.work(request, lambda: marks.leave(path, name))


def _marks(node: Service, request: Request) -> None:
    folder, names = request.args.path("folder"), request.args.texts("names")
    node.work(request, lambda: marks.look(folder, names))


def _unmark(node: Service, request: Request) -> None:
    folder, name = request.args.path("folder"), request.args.text("name")
    node.work(request, lambda: marks.take_back(folder, name))


def _kernel_log(node: Service, request: Request) -> None:
    since_s = request.args.number("since_uptime_s", 0.0)
    max_lines = int(request.args.number("max_lines", 5000))
    waiting = kernel.attempts(is_root=os.geteuid() == 0)
    failure: dict[str, Answer] = {}

    def attempt() -> None:
        argv = waiting.pop(0)
        try:
            node.capture(
                argv, ended, env=kernel.environment(), timeout_s=kernel.TIMEOUT_S, limit_bytes=kernel.LIMIT_BYTES
            )
        except CommandError as error:
            give_up_or_retry(kernel.refused(error.message, "command_missing"))

    def ended(result: Answer) -> None:
        if result["exit_code"] == 0:
            request.answer(kernel.read(result["stdout"], since_s, max_lines))
        elif result["timed_out"]:
            give_up_or_retry(kernel.refused(f"dmesg did not end within {kernel.TIMEOUT_S:g} s"))
        else:
            give_up_or_retry(kernel.refused(result["stderr"].strip() or f"dmesg ended with {result['exit_code']}"))

    def give_up_or_retry(answer: Answer) -> None:
        first = failure.setdefault("answer", answer)
        if waiting:
            attempt()
        elif "not_permitted" in (first["status"], answer["status"]):  # the reason that a person can mend
            request.answer(answer if answer["status"] == "not_permitted" else first)
        else:
            request.answer(answer)

    attempt()


def _undo(node: Service, request: Request) -> Answer:
    args = request.args
    argv = args.texts("argv")
    if not argv or not argv[0]:
        raise CommandError("bad_request", "undo: argv is empty, expected the program and its arguments")
    node.groups.undoings.add(args.text("name"), Undoing(argv, args.number("timeout_s", TIMEOUT_S)))
    node.groups.record()
    return {}


def _undone(node: Service, request: Request) -> Answer:
    was_known = node.groups.undoings.forget(request.args.text("name"))
    node.groups.record()
    return {"known": was_known}


def _alive(node: Service, request: Request) -> Answer:
    return alive(request.args.path("path"))


def _reap(node: Service, request: Request) -> None:
    path = request.args.path("path")
    if path == node.folder.path:
        raise CommandError("bad_request", f"reap: {path} is this node program's own folder, use leave")

    def work() -> Reaping:
        reaping = Reaping(path)
        reaping.end()
        return reaping

    def undo(reaping: Reaping) -> None:
        node.undo(reaping.undoings, lambda undone, not_undone: request.answer(reaping.conclude(undone, not_undone)))

    node.work(request, work, undo)


def _leave(node: Service, request: Request) -> None:
    node.forget = request.args.flag("forget", default=False)
    node.leave("the controller left", request.args.number("grace_s", LEAVE_GRACE_S))


COMMANDS: dict[str, Callable[[Service, Request], Answer | None]] = {
    "ping": _ping,
    "facts": _facts,
    "devices": _devices,
    "clock": _clock,
    "prepare": _prepare,
    "remove": _remove,
    "run": _run,
    "start": _start,
    "open": _open,
    "tell": _tell,
    "shut": _shut,
    "stop": _stop,
    "processes": _processes,
    "marked": _marked,
    "signal": _signal,
    "stat": _stat,
    "hash_tree": _hash_tree,
    "unpack": _unpack,
    "pack": _pack,
    "find": _find,
    "give": _give,
    "read_tail": _read_tail,
    "offer": _offer,
    "withdraw": _withdraw,
    "reach": _reach,
    "hold": _hold,
    "mark": _mark,
    "marks": _marks,
    "unmark": _unmark,
    "kernel_log": _kernel_log,
    "undo": _undo,
    "undone": _undone,
    "alive": _alive,
    "reap": _reap,
    "leave": _leave,
}
