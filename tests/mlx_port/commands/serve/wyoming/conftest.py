"""The package of the protocol is optional."""

import pytest

pytest.importorskip("wyoming", reason="wyoming is not installed: extra wyoming")
