"""Settings of this project's own tests."""

from __future__ import annotations

import importlib.util
import os

pytest_plugins = ["pytester"]

if importlib.util.find_spec("hypothesis") is not None:  # a validation in a checkout needs none of the tests' extras
    from hypothesis import settings

    # The same examples in each ordinary run, so that a red run can be seen again; the nightly one looks for new ones.
    settings.register_profile("ordinary", derandomize=True, deadline=None)  # a busy machine is no fault
    settings.register_profile("nightly", max_examples=2000, deadline=None)
    settings.load_profile(os.environ.get("AORTA_TEST_PROFILE", "ordinary"))
