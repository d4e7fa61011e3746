"""Pages of other sites send nothing to a server that a browser reaches; programs and its own page do."""

import pytest
from live.serving.served import MODEL, serving
from support.raw import encoded, picture

from perennial.live.serving.web import Origins

IMAGE = encoded(picture(1, 12))
SHOP = "https://shop.example"


@pytest.fixture(scope="module")
def allowing(world):
    with serving(world.folder, origins=frozenset({SHOP})) as (_, found):
        yield found


def sent(client, **headers: str):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"{MODEL}:predict", content=IMAGE, headers=names)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://evil.example", "sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": "http://localhost:3000"},
        {"origin": "http://rebound.example:8501", "host": "rebound.example:8501"},
        {"origin": SHOP},
    ],
    ids=str,
)
def test_a_foreign_page_sends_nothing(client, headers) -> None:
    answer = sent(client, **headers)
    assert (answer.status_code, "--allow-origin" in answer.json()["error"]) == (403, True)


def test_programs_the_own_page_and_a_page_behind_a_proxy_are_answered(client) -> None:
    own = str(client.base_url).rstrip("/")
    for headers in (
        {},
        {"host": "models.internal"},
        {"origin": own},
        {"origin": own, "sec_fetch_site": "same-origin"},
        {"origin": "https://models.example", "sec_fetch_site": "same-origin", "host": "models.example"},
        {"sec_fetch_site": "none"},
    ):
        assert sent(client, **headers).status_code == 200, headers
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link to the page


def test_pages_of_an_allowed_site_send_images_and_read_the_answers(allowing) -> None:
    asked = {
        "origin": SHOP,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    preflight = allowing.options(f"{MODEL}:predict", headers=asked)
    answer = sent(allowing, origin=SHOP, sec_fetch_site="cross-site")
    assert (preflight.status_code, answer.status_code) == (200, 200)
    assert {each.headers["access-control-allow-origin"] for each in (preflight, answer)} == {SHOP}
    assert sent(allowing, origin="https://evil.example").status_code == 403


def test_a_server_for_other_machines_has_its_page_under_any_name() -> None:
    headers = {"origin": "http://gpu-7:8501", "host": "gpu-7:8501"}
    assert not Origins().refuses("POST", headers)
    assert Origins(loopback=True).refuses("POST", headers)
