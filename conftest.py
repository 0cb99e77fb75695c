"""Settings of this project's own tests."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["pytester"]

# The same examples in each ordinary run, so that a red run can be seen again; the nightly one looks for new ones.
settings.register_profile("ordinary", derandomize=True, deadline=None)  # a busy machine is no fault
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("AORTA_TEST_PROFILE", "ordinary"))
