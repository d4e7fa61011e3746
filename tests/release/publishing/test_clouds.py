"""Versions in Azure and Google: three nights published, fetched and verified through failures."""

import pytest
from support import emulators, s3
from support.exports import write_export

from perennial.base import retries
from perennial.release.publishing import fetch
from perennial.release.publishing.publish import publish

SERVERS = {
    "azure": (emulators.Azure(), emulators.azure_server),
    "gs": (emulators.Google(), emulators.google_server),
}


@pytest.mark.parametrize("rate", [0, 0.05, 0.2])
@pytest.mark.parametrize("scheme", SERVERS)
def test_three_nights_are_published_and_fetched_through_failures(scheme, rate, load, tmp_path, monkeypatch):
    provider, start = SERVERS[scheme]
    with start() as url:
        proxy = s3.Proxy(url, rate=rate, faults=s3.FAST_FAULTS)
        provider.create(url, "bucket")
        for name, value in provider.variables(proxy.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
        place = f"{scheme}://bucket/models/digits"
        config = load(**{"publish.url": place})
        for night in (1, 2, 3):
            write_export(config, f"m{night}")
            assert publish(config).version == night
        fetch.fetch(place, tmp_path / "fetched")
        assert (tmp_path / "fetched" / "saved_model.pb").read_text() == "graph of m3"
        assert bool(proxy.failed) == (rate > 0)
        print(scheme, rate, len(proxy.failed), "of", len(proxy.asked))
        proxy.end()
