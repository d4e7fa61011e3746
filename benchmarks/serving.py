"""The programs of the subject serve, a process each: `python -m benchmarks.serving KIND ...`."""

import base64
import http.client
import importlib
import itertools
import json
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson

import perennial

CLIENTS = 32
IMAGES, SIDE, CLASSES = 64, 28, 10
CLOSE = 1e-5  # difference of a probability from the one that `perennial.load` gives
PATH = "/v1/models/classifier:predict"


def export(folder: str, seed: str) -> None:
    """Exports mnist_cnn with weights of a seed, as of a published version, and prints its file."""
    keras, model_folder, saved_model, preprocessing, sections = (
        importlib.import_module(module)
        for module in (
            "keras",
            "perennial.model.models.model_folder",
            "perennial.model.export.saved_model",
            "perennial.data.preprocessing",
            "perennial.base.config.data",
        )
    )
    keras.utils.set_random_seed(int(seed))
    description = model_folder.Description(
        name="mnist_cnn",
        options=sections.ModelConfig(name="mnist_cnn", dropout=None, conv_stddev=None, labels_offset=0),
        classes=[f"class {number}" for number in range(CLASSES)],
        pixels=preprocessing.ImageSpec(
            preprocessing="rescale",
            height=SIDE,
            width=SIDE,
            channels=1,
            image_size=SIDE,
            grayscale=True,
            fast=True,
        ),
        data="",
        weights_sha256="",
    )
    model = description.build()
    description = description.model_copy(update={"weights_sha256": model_folder.weights_sha256(model)})
    Path(folder).mkdir(parents=True)
    labels = Path(folder).with_name("labels.txt")
    labels.write_text("".join(f"{number}:class {number}\n" for number in range(CLASSES)), encoding="utf-8")
    saved_model.save(Path(folder), model, description, (labels,))


def right(folder: str, images: str, file: str) -> None:
    """Writes what `perennial.load` answers to each image."""
    found = perennial.load(folder).predict(sorted(Path(images).iterdir()))
    Path(file).write_text(json.dumps([each.probabilities.tolist() for each in found]), encoding="utf-8")


def keras(folder: str, port: str) -> None:
    """A server with FastAPI, and Keras' `predict` of each request in a thread."""
    tf = importlib.import_module("tensorflow")
    model, pixels = _keras_model(folder)

    def probabilities(encoded: Sequence[bytes]) -> Any:
        images = tf.stack([pixels.evaluation_one(tf.io.decode_image(each, 1)) for each in encoded])
        return tf.nn.softmax(model.predict(images, verbose=0)).numpy()

    _serve(probabilities, port)


def signature(folder: str, port: str) -> None:
    """A server with FastAPI, and one call of the exported signature for each request in a thread."""
    tf = importlib.import_module("tensorflow")
    loaded = tf.saved_model.load(folder)
    classify = loaded.signatures["classify_bytes"]
    _serve(lambda encoded: classify(image=tf.constant(encoded))["probabilities"].numpy(), port)


def _serve(probabilities: Callable[[Sequence[bytes]], Any], port: str) -> None:
    """Answers requests with the probabilities of their images, each request in a thread of FastAPI's."""
    fastapi, uvicorn = (importlib.import_module(each) for each in ("fastapi", "uvicorn"))
    app = fastapi.FastAPI()

    def predict(body: dict[str, Any]) -> dict[str, Any]:
        found = probabilities([base64.b64decode(each["b64"]) for each in body["instances"]])
        return {"predictions": [{"probabilities": each.tolist()} for each in found], "model_version": "1"}

    app.post(PATH)(predict)
    app.get("/ready")(lambda: "ready")
    uvicorn.run(app, port=int(port), log_level="error")


def calls(folder: str, images: str, requests: str) -> None:
    """Keras' `predict` of one decoded image at a time, from as many threads as there are clients."""
    tf = importlib.import_module("tensorflow")
    model, pixels = _keras_model(folder)
    decoded = [
        pixels.evaluation_one(tf.io.decode_image(file.read_bytes(), 1)).numpy()[None]
        for file in sorted(Path(images).iterdir())
    ]
    model.predict(decoded[0], verbose=0)
    _measure(int(requests), lambda: lambda number: str(model.predict(decoded[number], verbose=0).shape))


def clients(url: str, images: str, answers: str, requests: str) -> None:
    """Asks from several threads, each with a connection, and compares every answer."""
    host = url.removeprefix("http://").strip("/")
    good = [np.array(each) for each in json.loads(Path(answers).read_text(encoding="utf-8"))]
    bodies = [
        json.dumps({"instances": [{"b64": base64.b64encode(file.read_bytes()).decode()}]}).encode()
        for file in sorted(Path(images).iterdir())
    ]

    def connected() -> Callable[[int], str]:
        connection = http.client.HTTPConnection(host, timeout=120)

        def ask(number: int) -> str:
            connection.request("POST", PATH, bodies[number], {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                return f"status {response.status}"
            found = orjson.loads(content)
            version = found["model_version"]
            model = good[(int(version) - 1) % len(good)]
            close = np.abs(np.array(found["predictions"][0]["probabilities"]) - model[number]).max() < CLOSE
            return version if close else "wrong"

        return ask

    _measure(int(requests), connected)


def _keras_model(folder: str) -> tuple[Any, Any]:
    model, description = importlib.import_module("perennial.model.models.model_folder").load_export(
        Path(folder)
    )
    return model, description.pixels


def _measure(requests: int, connected: Callable[[], Callable[[int], str]]) -> None:
    """Prints the times of so many requests from all clients, and the number of each answer."""
    numbers, lock = itertools.count(), threading.Lock()
    seconds: list[float] = []
    answers: Counter[str] = Counter()

    def client() -> None:
        ask = connected()
        while True:
            with lock:
                number = next(numbers)
            if number >= requests:
                return
            begun = time.perf_counter()
            try:
                answer = ask(number % IMAGES)
            except (OSError, http.client.HTTPException) as error:
                answer, ask = f"lost: {error!r}", connected()
            took = time.perf_counter() - begun
            with lock:
                seconds.append(took)
                answers[answer] += 1

    started = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for each in [pool.submit(client) for _ in range(CLIENTS)]:
            each.result()
    rate = requests / (time.monotonic() - started)
    cuts = statistics.quantiles(seconds, n=1000)
    milliseconds = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "max": max(seconds)}
    found = {name: 1000 * each for name, each in milliseconds.items()}
    print(json.dumps({"requests_per_second": rate, "milliseconds": found, "answers": dict(answers)}))


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "export": export,
        "right": right,
        "keras": keras,
        "signature": signature,
        "calls": calls,
        "clients": clients,
    }
    programs[sys.argv[1]](*sys.argv[2:])
