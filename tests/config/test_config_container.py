"""Values that no engine could take are refused by their path before any host is contacted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.config.config_site import CONTAINER, Site

DIGEST = f"sha256:{'0f' * 32}"
TAKEN: dict[str, list[Any]] = {
    "ulimit": [["memlock=-1"], ["nofile=1024:4096", "stack=67108864"], ["core=0:-1"], [f"cpu={2**63 - 1}"]],
    "shm_size": ["8g", "0.5 GiB", 1048576, "", "1b", "8388607t"],
    "security_opt": [["seccomp=unconfined", "label=disable", "no-new-privileges"], ["label:disable"]],
    "user": ["root", "ops:users", "1000:1000", 0, ""],
    "volumes": [["/a:/b"], ["/a"], ["/a b:/c:ro,rslave"], ["/a,b:/c:z"]],
    "devices": [["/dev/fuse"], ["/dev/a:/dev/b:rw"]],
    "cap_add": [["SYS_ADMIN", "CAP_NET_RAW", "ALL"]],
    "group_add": [["video", 44]],
    "network": ["host", "container:other", "none"],
    "registry": [{"username": "ci", "password_file": "~/password", "server": "registry.site:5000"}],
}
REFUSED: dict[str, list[Any]] = {
    "ulimit": [
        ["memlock=-5"],
        ["nofile=5:3"],
        ["nofile=-1:5"],
        ["x"],
        ["nofile=1:2:3"],
        ["files=5"],
        [""],
        [f"nofile={2**63}"],
        ["memlock=-1", "memlock=5"],
    ],
    "shm_size": [-1, 0, "8gg", "-8g", "much", "0", "0g", "0.4b", f"{'9' * 30}t", "8388608t", 2**63],
    "security_opt": [["-x"], ["garbage"], ["seccomp"], ["label=a\nb"], ["other=x"]],
    "user": ["-x", "a b", "a:b:c", "$(id)", "a\nb", -1],
    "volumes": [
        ["data:/data"],
        ["/a:b"],
        ["/a:/b:/c:ro"],
        ["/a:/b:fast"],
        ["/:/host"],
        ["/a:/"],
        ["/a:/.."],
        ["/a\n:/b"],
    ],
    "devices": [["fuse"], ["/dev/a:b"], ["/dev/a:/dev/b:rwx"]],
    "cap_add": [["-x"], ["A B"]],
    "group_add": [["-x"], [-1], ["a b"]],
    "network": ["-x", "a b", ""],
    "ipc": ["a\nb"],
    "registry": [{"server": "a b"}, {"server": "-x"}],
}


def of(taken: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}={value!r}") for name, values in taken.items() for value in values]


def with_args(**args: Any) -> dict[str, Any]:
    return {**CONTAINER, "runtime": {"args": args}}


@pytest.mark.parametrize(("name", "value"), of(TAKEN))
def test_what_engines_take(site: Site, name: str, value: Any) -> None:
    assert site.minimal(container=with_args(**{name: value})).config.container is not None


@pytest.mark.parametrize(("name", "value"), of(REFUSED))
def test_what_no_engine_takes(site: Site, name: str, value: Any) -> None:
    (where, told), *others = site.minimal_faults(container=with_args(**{name: value})).items()
    assert where.startswith(f"container.runtime.args.{name}")
    assert told.startswith("seen ")
    assert ", expected " in told
    assert "\n" not in told
    assert others == []


@pytest.mark.parametrize(
    "image",
    ["rocm/pytorch", "lab/machine:1", "reg.site:5000/team/x_y:Tag-1", f"img@{DIGEST}", f"img:1@{DIGEST}", "0f" * 32,
     "HOST/x", "[::1]:5000/x"],
)  # fmt: skip
def test_references_of_images(site: Site, image: str) -> None:
    site.minimal(container={**CONTAINER, "image": image})


@pytest.mark.parametrize(
    "image", ["", " ", "-x", "a b", "Name", "a:b:c", "a//b", "a:", "a@b", "a$(b)", "a\nb", "x" * 2000]
)
def test_what_is_no_image(site: Site, image: str) -> None:
    assert list(site.minimal_faults(container={**CONTAINER, "image": image})) == ["container.image"]
