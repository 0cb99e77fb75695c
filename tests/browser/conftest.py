"""The pages to look at, made once a session, and a server that sends the header of Jenkins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.reports import Site, make_site
from tests.browser.server import serve


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="session")
def jenkins(site: Site) -> Iterator[str]:
    """Serve the site as Jenkins serves published HTML; give its address."""
    with serve(site.root, as_jenkins=True) as address:
        yield address
