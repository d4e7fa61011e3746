"""Prefect's settings, and what answers in the place of its server: one line that names variable and remedy."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import prefect
import pytest
from conftest import ROOT
from support.small_servers import Answering, served

from perennial.base.errors import ConfigError, PerennialError
from perennial.orchestration.client import prefect_server, settings

Answer = tuple[int, str] | tuple[int, str, dict[str, str]]
PAGE = (200, "<html><head><title>Sign in</title></head><body>Who are you?</body></html>")
VERSION = f'"{prefect.__version__}"'


@contextmanager
def answering(answer: Callable[[str, str, dict[str, str]], Answer]) -> Iterator[str]:
    """A web server; `answer` gets method, path and headers of a request."""

    class Handler(Answering):
        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text, *more = answer(self.command, self.path, headers)
            self.send_response(status)
            for name, value in (more[0] if more else {}).items():  # type: ignore[attr-defined]
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = handle_any

    with served(Handler) as address:
        yield address


def refused(url: str, **more: str) -> str:
    """The message of the first request, which must be one line with exit code 2."""
    with (
        prefect_server.connect({"PREFECT_API_URL": url, **more}, pauses=()) as client,
        pytest.raises(PerennialError) as error,
    ):
        client.request("POST", "flows/filter", {})
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    return str(error.value)


AWAY = (302, "", {"Location": "https://sso.example/login"})
ANSWERS: list[tuple[Answer, str, str]] = [
    (PAGE, "/api", "'Sign in', and not with Prefect's API; it may be the sign-in page"),
    (PAGE, "", "PREFECT_API_URL must end in /api: {url}/api"),
    (AWAY, "/api", "redirects to https://sso.example/login, which is not Prefect's API"),
    ((404, '{"detail": "Not Found"}'), "/prefect/api", "there is no Prefect API; correct PREFECT_API_URL"),
    ((200, '"2.20.1"'), "/api", "runs Prefect 2.20.1, and this is a client of Prefect 3"),
    ((401, '{"detail": "Unauthorized"}'), "/api", "look at PREFECT_API_AUTH_STRING"),
    ((403, '{"detail": "Unauthorized"}'), "/api", "look at PREFECT_API_AUTH_STRING"),
]


@pytest.mark.parametrize(("answer", "path", "words"), ANSWERS)
def test_what_answers_in_the_place_of_the_server_is_named(answer: Answer, path: str, words: str) -> None:
    with answering(lambda *_: answer) as url:
        message = refused(f"{url}{path}", PREFECT_API_AUTH_STRING="a:hunter2")
    assert words.format(url=url) in message
    assert prefect.__version__.partition(".")[0] == prefect_server.MAJOR


def test_a_server_that_limits_requests_is_asked_again() -> None:
    answers: list[Answer] = [(200, VERSION), (429, "{}"), (408, "{}")]
    with (
        answering(lambda *_: answers.pop()) as url,
        prefect_server.connect({"PREFECT_API_URL": f"{url}/api"}, pauses=(0, 0)) as client,
    ):
        client.reach()
    assert answers == []


def test_a_redirect_is_not_followed_so_that_a_password_stays_here() -> None:
    seen: list[dict[str, str]] = []

    def spy(_: str, __: str, headers: dict[str, str]) -> Answer:
        seen.append(headers)
        return 200, VERSION

    with answering(spy) as other:
        elsewhere = other.replace("127.0.0.1", "localhost")
        with answering(lambda _, path, __: (308, "", {"Location": f"{elsewhere}{path}"})) as url:
            message = refused(f"{url}/api", PREFECT_API_AUTH_STRING="ann:hunter2")
    assert f"set PREFECT_API_URL={elsewhere}/api" in message
    assert seen == []


def test_http_to_a_server_with_tls_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with listener.accept()[0] as connection:
                connection.recv(4096)

        Thread(target=hang_up, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        assert "If it speaks TLS, PREFECT_API_URL must start with https://" in refused(url)


def test_https_to_a_server_without_tls_is_named() -> None:
    with answering(lambda *_: (200, VERSION)) as url:
        assert "PREFECT_API_URL must start with http://" in refused(f"{url.replace('http:', 'https:')}/api")


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_server, "FIRST_S", 0.2)

    def hang(*_: object) -> Answer:
        time.sleep(2)
        return 200, VERSION

    with answering(hang) as url:
        message = refused(f"{url}/api")
    assert "no answer in time" in message
    assert "correct PREFECT_API_URL" in message


def test_the_proxy_that_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda *_: (200, VERSION)) as url, answering(lambda *_: PAGE) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        message = refused(f"{url}/api")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with prefect_server.connect({"PREFECT_API_URL": f"{url}/api"}, pauses=()) as client:
            client.reach()
    assert "_proxy; NO_PROXY=127.0.0.1 avoids it" in message.replace("_PROXY;", "_proxy;")


def test_a_token_is_fetched_where_the_server_wants_one() -> None:
    def protected(method: str, path: str, headers: dict[str, str]) -> Answer:
        if "csrf-token" in path:
            return 200, '{"token": "t1"}'
        if method == "POST" and headers.get("prefect-csrf-token") != "t1":
            return 403, '{"detail": "Missing CSRF token."}'
        return 200, "[]"

    with answering(protected) as url:
        with prefect_server.connect({"PREFECT_API_URL": f"{url}/api"}, pauses=()) as client:
            assert client.request("POST", "flows/filter", {}) == []
        off = {"PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false"}
        assert "set PREFECT_CLIENT_CSRF_SUPPORT_ENABLED=true" in refused(f"{url}/api", **off)


INVALID = {
    "PREFECT_CLIENT_CUSTOM_HEADERS": ["X-A: b", "[1]", '{"X": 1}', '{"X": "a\\nb"}', '{"X": "\u00e9"}'],
    "PREFECT_API_URL": ["http://[::1/api", "http://127.0.0.1:431o/api", "127.0.0.1:4200/api", "http://"],
    "PREFECT_API_SSL_CERT_FILE": ["/nowhere/root.pem", __file__],
    "PREFECT_API_TLS_INSECURE_SKIP_VERIFY": ["perhaps"],
    "PREFECT_API_REQUEST_TIMEOUT": ["soon"],
    "PREFECT_API_KEY": ["a\nb"],
}


@pytest.mark.parametrize(("name", "value"), [(name, each) for name in INVALID for each in INVALID[name]])
def test_a_setting_that_is_not_valid_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as error:
        prefect_server.connect({"PREFECT_API_URL": "https://127.0.0.1:9/api", name: value})
    assert "\n" not in str(error.value)


def test_a_proxy_that_cannot_be_used_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, why in (("socks5://127.0.0.1:1", "names a SOCKS proxy"), ("quic://127.0.0.1:1", "quic")):
        monkeypatch.setenv("ALL_PROXY", value)
        with pytest.raises(ConfigError, match=f"ALL_PROXY .*{why}.*unset ALL_PROXY"):
            prefect_server.connect({"PREFECT_API_URL": "http://127.0.0.1:9/api"})


def test_settings_come_from_where_prefect_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = {"PREFECT_HOME": str(tmp_path / "home")}
    Path("home").mkdir()
    places = [
        ("home/profiles.toml", 'active = "a"\n[profiles.a]\nPREFECT_API_URL = "http://profile/api"'),
        ("pyproject.toml", '[tool.prefect.api]\nurl = "http://pyproject/api"'),
        ("prefect.toml", '[api]\nurl = "http://prefect/api"'),
        (".env", "PREFECT_API_URL=http://dotenv/api"),
    ]
    assert settings.read(home).url is None
    with as_prefect(tmp_path, home) as url_of_prefect:
        for file, text in places:
            Path(file).write_text(text)
            named = {"home/profiles.toml": "profile", ".env": "dotenv"}.get(file, file.partition(".")[0])
            assert settings.read(home).url == f"http://{named}/api" == url_of_prefect()
    assert settings.read({**home, "PREFECT_API_URL": "http://own/api"}).url == "http://own/api"
    assert settings.read({**home, "PREFECT_API_URL": ""}).url is None


@contextmanager
def as_prefect(folder: Path, environment: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Gives a function that returns the address that Prefect itself takes now."""
    code = (
        "import sys; from prefect.settings import Settings\n"
        "for _ in sys.stdin: print(Settings().api.url, flush=True)"
    )
    environment = {**environment, "PATH": os.environ["PATH"], "HOME": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        ask, answer = process.stdin, process.stdout

        def url() -> str:
            print(file=ask, flush=True)
            return answer.readline().strip()

        yield url
        ask.close()


@pytest.mark.parametrize(("file", "content"), [("profiles.toml", b'active = "x'), (".env", b"\xff\xfe")])
def test_a_file_of_settings_that_cannot_be_read_is_named(file, content, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(file).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{file}, which may hold .* cannot be read: .*; correct it"):
        settings.read({"PREFECT_HOME": str(tmp_path)})


@pytest.mark.fast_rows("PREFECT_SERVER_DATABASE_TIMEOUT-soon")
@pytest.mark.parametrize(
    ("name", "value"), [("PREFECT_LOGGING_LEVEL", "loud"), ("PREFECT_SERVER_DATABASE_TIMEOUT", "soon"),
                        ("PREFECT_TASKS_DEFAULT_RETRIES", "many"), ("PREFECT_CLIENT_MAX_RETRIES", "x")],
)  # fmt: skip
def test_a_value_that_prefect_refuses_is_one_line_that_names_the_variable(name: str, value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tasks"],
        env=os.environ | {"PREFECT_API_URL": "http://127.0.0.1:9/api", name: value},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    importing, *said = done.stderr.splitlines()
    assert (importing, len(said)) == ("importing Prefect, which takes some seconds", 1)
    assert name in said[0]


WRONG = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_CLIENT_CUSTOM_HEADERS": "X-A: b"}


@pytest.mark.parametrize("module", ["flows.retrain", "tasks.deploy", "tasks.worker"])
def test_programs_of_prefect_name_a_wrong_setting_without_a_traceback(module: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", **WRONG}
    command = [sys.executable, "-m", module, *(["--pool", "cpu"] if module == "tasks.worker" else [])]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "PREFECT_CLIENT_CUSTOM_HEADERS (in the environment) must be a JSON" in done.stderr
