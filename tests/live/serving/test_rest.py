"""TensorFlow Serving's REST form, and what is refused."""

import base64
import re
import shutil
import socket
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from live.serving.served import MODEL, b64, expected, serving
from support.inference import CLASSES, abstain
from support.odd_images import png_without_pixels, saved
from support.raw import encoded, picture

from perennial.base import files

PIXELS = picture(1, 12)
PNG, JPEG = encoded(PIXELS), encoded(picture(2, 30), "JPEG")
PREDICT = f"{MODEL}:predict"
FORMS = {
    "files": {"instances": [b64(PNG)]},
    "a file in lines": {"instances": [{"b64": base64.encodebytes(PNG).decode().rstrip("=\n")}]},
    "named files": {"instances": [{"image": b64(PNG)}], "signature_name": "classify_bytes"},
    "pixels": {"instances": [PIXELS.tolist()]},
    "named pixels": {"instances": [{"image": PIXELS.tolist()}], "signature_name": "serving_default"},
    "column of files": {"inputs": [b64(PNG)]},
    "named column of files": {"inputs": {"image": [b64(PNG)]}},
    "column of pixels": {"inputs": [PIXELS.tolist()], "signature_name": "classify"},
}


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_each_form_of_a_request_gets_the_answer_of_predict(client, classifier, body) -> None:
    answer = client.post(PREDICT, json=body)
    found = answer.json()
    if "inputs" in body:
        ((probabilities,), (chosen,)) = found["outputs"]["probabilities"], found["outputs"]["classes"]
    else:
        ((chosen, probabilities),) = ((row["classes"], row["probabilities"]) for row in found["predictions"])
    assert [probabilities] == [pytest.approx(each, abs=1e-5) for each in expected(classifier, PNG)]
    assert chosen == int(np.argmax(probabilities))
    assert found["model_version"] == answer.headers["Model-Version"]


@pytest.mark.parametrize("content", [JPEG, PNG], ids=["JPEG", "PNG"])
def test_the_body_may_be_an_image_file_itself(client, classifier, content) -> None:
    headers = {"Content-Type": "image/*"}
    (row,) = client.post(PREDICT, content=content, headers=headers).json()["predictions"]
    assert row["probabilities"] == pytest.approx(expected(classifier, content)[0], abs=1e-5)
    (labels,) = client.post(f"{MODEL}:classify", content=content).json()["results"]
    assert labels[0][0] == classifier.predict(content)[0].label


def test_images_of_several_sizes_and_formats_are_one_request(client, classifier) -> None:
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    image = PIL.Image.fromarray(picture(3, 24)[:, :16])
    images = [JPEG, PNG, saved(image, "WEBP", lossless=True), saved(image, "JPEG", exif=turned)]
    found = client.post(PREDICT, json={"instances": [*map(b64, images)]}).json()["predictions"]
    for good, row in zip(expected(classifier, *images), found, strict=True):
        assert row["probabilities"] == pytest.approx(good, abs=1e-5)


def test_classify_answers_names_the_most_probable_first(client, classifier) -> None:
    (found,) = client.post(f"{MODEL}:classify", json={"examples": [{"image": b64(JPEG)}]}).json()["results"]
    (prediction,) = classifier.predict(JPEG, top=3)
    assert [label for label, _ in found] == [each.label for each in prediction.classes]
    assert [share for _, share in found] == pytest.approx([each.probability for each in prediction.classes])


def test_what_the_model_is_not_sure_of_is_unknown(world, classifier, tmp_path) -> None:
    images = [JPEG, PNG]
    known = classifier.predict(images)
    threshold = np.mean(sorted(each.probability for each in known)[-2:])
    answers = [each.label if each.probability >= threshold else "unknown" for each in known]
    export = abstain(Path(shutil.copytree(world.folder, tmp_path / "export")), float(threshold))
    examples = [{"image": b64(each)} for each in images]
    with serving(export) as (_, client):
        found = client.post(PREDICT, json={"instances": [*map(b64, images)]}).json()
        named = client.post(f"{MODEL}:classify", json={"examples": examples}).json()
        metrics = client.get("metrics").text
    assert found["answers"] == named["answers"] == answers
    assert [row["classes"] for row in found["predictions"]] == [each.index for each in known]
    assert "perennial_unknown_images_total 2.0" in metrics


def test_status_and_metadata_name_the_version(client, world) -> None:
    version = files.sha256(world.folder / "assets.extra" / "model.json")[:12]
    (status,) = client.get(f"{MODEL}/versions/{version}").json()["model_version_status"]
    assert {"version": version, "state": "AVAILABLE"}.items() <= status.items()
    found = client.get(f"{MODEL}/metadata").json()
    assert found["model_spec"] == {"name": "pets", "signature_name": "", "version": version}
    assert found["metadata"]["classes"] == list(CLASSES)
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert set(signatures) == {"classify", "classify_bytes", "serving_default"}
    assert signatures["classify"]["inputs"]["image"]["dtype"] == "DT_UINT8"
    assert client.post(f"{MODEL}/versions/{version}:predict", json=FORMS["files"]).status_code == 200


def image(content: bytes) -> dict[str, object]:
    return {"instances": [b64(content)]}


GREY = PIL.Image.new("L", (20, 20))
BODIES = {
    "no JSON": (b"{", 400, "the body is not JSON"),
    "half an image": (JPEG[:-9], 400, "the body: it is incomplete"),
    "other file": (b"II?\0\xff\xff\xff\xff", 415, "it is neither JSON in UTF-8 nor a JPEG, HEIC, PNG"),
    "deep": (b"[" * 40_000, 400, "the body is not JSON"),
    "many numbers": (b"[" + b"0," * 60_000 + b"0]", 413, "more than 50000 JSON values"),
    "a data URL": (
        {"instances": [{"b64": "data:image/png;base64,iVBO"}]}, 400, "a data URL; send what follows its comma",
    ),
    "no object": ([], 400, "the body is an empty list, not an object"),
    "no images": ({}, 400, "must have one of instances, inputs, but has none"),
    "both": ({"instances": [], "inputs": []}, 400, "has instances and inputs"),
    "empty": ({"instances": []}, 400, "instances is an empty list"),
    "too many": ({"instances": [b64(PNG)] * 5}, 413, "holds 5 images, the limit is 4"),
    "unknown signature": ({"signature_name": "x" * 99, "instances": [1]}, 400, "there is no signature 'xxxx"),
    "other signature": ({"signature_name": "classify", "instances": [b64(PNG)]}, 400, "takes pixels"),
    "a number": ({"instances": [b64(PNG), 7]}, 400, r"instances\[1\] is a number"),
    "other keys": ({"instances": [{"x": 1}]}, 400, "an object with 'x', expected"),
    "no base64": ({"instances": [{"b64": "*"}]}, 400, r"instances\[0\] is not base64"),
    "ragged pixels": ({"instances": [[[[1], [2]], [[3]]]]}, 400, "rows of different lengths"),
    "four channels": ({"instances": [[[[1, 2, 3, 4]]]]}, 400, r"the shape \[1, 1, 4\]"),
    "pixels above 255": ({"instances": [[[[256]]]]}, 400, "integers from 0 to 255"),
    "fractions": ({"instances": [[[[0.5]]]]}, 400, "integers from 0 to 255"),
    "a long word between numbers": ({"instances": [[[["x" * 20_000], *([1] for _ in range(3000))]]]}, 400,
                                    "integers from 0 to 255"),
    "a number beside rows": ({"instances": [[[[1]], 7]]}, 400, "rows of different lengths"),
    "true": ({"instances": [[[[True]]]]}, 400, "integers from 0 to 255"),
    "a huge integer": ({"instances": [[[[10**30]]]]}, 400, "integers from 0 to 255|not JSON"),
    "a bomb": (image(png_without_pixels(50_000, 50_000)), 400, "2500000000 pixels, the limit is 100000"),
    "a larger image": (image(saved(PIL.Image.new("L", (400, 300)), "WEBP")), 400, "120000 pixels"),
    "no image": (image(b"%PDF-1.7"), 400, r"it is a PDF; `magick mogrify -format png FILE` converts it"),
    "an empty file": (image(b""), 400, "it is empty"),
    "half a JPEG": (image(JPEG[: len(JPEG) // 2]), 400, "incomplete"),
    "a GIF": (saved(GREY, "GIF"), 400, "the body: it is a GIF; `magick mogrify -format png FILE` converts"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "status", "message"), BODIES.values(), ids=BODIES)
def test_a_bad_request_is_refused_with_the_reason(client, body, status, message) -> None:
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = client.post(PREDICT, **sent)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert re.search(message, answer.json()["error"]), answer.text


PATHS = {
    "another model": ("POST", "v1/models/dogs:predict", 404, "no model 'dogs'; this server has 'pets'"),
    "another version": ("POST", f"{MODEL}/versions/7:predict", 404, "version 7 is not served"),
    "GET": ("GET", PREDICT, 405, "takes POST"),
    "regress": ("POST", f"{MODEL}:regress", 405, "Method Not Allowed"),
    "another path": ("GET", "v1/nothing", 404, "Not Found"),
}


@pytest.mark.parametrize(("method", "path", "status", "message"), PATHS.values(), ids=PATHS)
def test_another_address_is_refused(client, method, path, status, message) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert message in answer.json()["error"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_beyond_the_limit_is_refused_and_the_sender_sees_why(client, chunked) -> None:
    content = (b"x" * (1 << 20) for _ in range(3)) if chunked else b"x" * (3 << 20)
    answer = client.post(PREDICT, content=content)
    assert answer.status_code == 413
    assert "more than 1048576 bytes" in answer.json()["error"]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"content": b"\x1f\x8b", "headers": {"Content-Encoding": "gzip"}}, "the body is compressed (gzip)"),
        ({"files": {"file": ("rose.jpg", JPEG, "image/jpeg")}}, "the body is a form; send the image file"),
    ],
)
def test_a_compressed_body_or_a_form_is_refused_with_what_to_send(client, sent, message) -> None:
    answer = client.post(PREDICT, **sent)
    assert answer.status_code == 415
    assert answer.json()["error"].startswith(message)


def test_a_body_of_two_lengths_is_refused_and_what_follows_is_not_read(client) -> None:
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
        raw.sendall(
            b"POST /health HTTP/1.1\r\nHost: a\r\n" + lengths + b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        answer = b"".join(iter(lambda: raw.recv(1000), b""))
    assert answer[:12] == b"HTTP/1.1 400"
    assert answer.count(b"HTTP/1.1") == 1


def test_a_body_that_does_not_come_is_refused(client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
        raw.sendall(b"POST /v1/models/pets:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        assert b"408" in raw.recv(1000)


def test_what_is_not_allowed_names_what_is(client) -> None:
    answer = client.post("health")
    assert (answer.status_code, answer.headers["Allow"]) in [(405, "GET, HEAD"), (405, "HEAD, GET")]


@pytest.mark.parametrize("path", ["", "health", "ready"])
def test_probes_may_send_head(client, path) -> None:
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_connections_that_send_no_request_are_closed(world) -> None:
    with serving(world.folder, head_s=0.1) as (_, client):
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address) as silent, socket.create_connection(address) as half:
            half.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert half.recv(10_000).startswith(b"HTTP/1.1 200")
            half.sendall(b"GET /health HTTP/1.1\r\nHost:")
            assert silent.recv(1) == b""
            assert last(half) == b""


def last(connection: socket.socket) -> bytes:
    """What a connection ends with, after the rest of a response."""
    while chunk := connection.recv(10_000):
        assert b"alive" in chunk
    return chunk
