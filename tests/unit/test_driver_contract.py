"""Each driver does what every driver must do."""

from functools import partial

import pytest

from dfrs.live.drivers.nice_levels.driver import NiceDriver
from dfrs.testing.drivers import DriverContract
from tests.driver_hosts import host, needs_groups, needs_root

__all__ = ["host"]


class _OfHost(DriverContract):
    @pytest.fixture(autouse=True)
    def mark(self, host):
        self.host = host

    def spec(self, *command, **fields):
        """With a mark by which what is left is found."""
        return self.host.spec(*command, **fields)


@needs_root
@needs_groups
class TestControlGroupDriver(_OfHost):
    @pytest.fixture
    def open_node(self, host):
        return host.node


class TestNiceDriver(_OfHost):
    @pytest.fixture
    def open_node(self, host):
        return partial(host.node, driver=NiceDriver)
