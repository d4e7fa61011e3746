"""The public door of a project's own components."""

import pytest

from perennial import components


@pytest.mark.parametrize("name", components.__all__)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(components, name).__name__ == name
