import pytest
from support.records import write_pets


@pytest.fixture
def folder(tmp_path):
    """A small valid record folder."""
    return write_pets(tmp_path)
