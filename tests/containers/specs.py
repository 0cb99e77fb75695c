"""What the tests of this room start from."""

from __future__ import annotations

from pytest_aorta.containers.spec import RUN_LABEL, STATE_LABEL, Spec

RUN = "run-of-today"
SPEC = Spec("box", "rocm/pytorch:latest", labels={RUN_LABEL: RUN, STATE_LABEL: "/state"})
