"""The passwords of registries, read on a host."""

from __future__ import annotations

from pathlib import Path

from pytest_aorta.containers.logins import passwords
from pytest_aorta.containers.spec import Login
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport


def test_a_password_is_read_through_a_link_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "password").write_text(" s3 cret\r\n")
    (tmp_path / "password").symlink_to("..data/password")
    fleet = Fleet({"n1": LocalTransport(), "n2": LocalTransport()})
    fleet.open({name: str(tmp_path / name) for name in ("n1", "n2")})
    try:
        found = passwords(
            fleet,
            {
                "n1": Login("ci", str(tmp_path / "password"), "registry.site"),
                "n2": Login("ci", str(tmp_path / "absent"), "registry.site"),
            },
        )
    finally:
        fleet.close()
    assert found.good == {"n1": " s3 cret"}
    assert list(found.failed) == ["n2"]
    assert found.failed["n2"].startswith("the registry's password cannot be read: ")
    assert "absent" in found.failed["n2"]
