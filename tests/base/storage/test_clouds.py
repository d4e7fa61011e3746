"""What is special about the stores of Google and Azure."""

import pytest

from perennial.base.errors import ConfigError
from perennial.base.storage import open_store


def test_an_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'perennial-ml\[gcs\]'"):
        open_store("gs://bucket/prefix")


def test_azure_without_an_account_names_the_variables(monkeypatch):
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"no account; .*AZURE_STORAGE_ACCOUNT"):
        open_store("azure://container")


def test_google_without_credentials_names_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match=r"no credentials .*GOOGLE_APPLICATION_CREDENTIALS"):
        open_store("gs://bucket")
