"""Answers as they are printed: lines for a person, one JSON document, or CSV; each as soon as it is there."""

import csv
import json
from collections.abc import Callable, Iterable
from typing import TextIO

from perennial.images import BadImage
from perennial.prediction.answers import Prediction
from perennial.records.problems import printable

Answers = Iterable[tuple[str, Prediction | BadImage]]  # with the names of the files
CSV_HEADER = ("file", "rank", "class", "index", "probability")


def lines(answers: Answers, stream: TextIO) -> None:
    """A line an image: its name, and the classes with their probabilities."""
    for file, answer in answers:
        if isinstance(answer, Prediction):
            told = ", ".join(f"{each.label} {each.probability:.4f}" for each in answer.classes)
            stream.write(printable(f"{file}: {told}") + "\n")
            stream.flush()


def json_document(answers: Answers, stream: TextIO) -> None:
    """A list with an object an image, those with an error among them."""
    before = "[\n"
    for file, answer in answers:
        stream.write(f"{before}  {json.dumps(_as_json(file, answer))}")
        stream.flush()
        before = ",\n"
    stream.write("\n]\n" if before == ",\n" else "[]\n")


def csv_rows(answers: Answers, stream: TextIO) -> None:
    """A header, and a row for each class of each image."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for file, answer in answers:
        if isinstance(answer, Prediction):
            for rank, each in enumerate(answer.classes, 1):
                writer.writerow((file, rank, each.label, each.index, each.probability))
            stream.flush()


FORMS: dict[str, Callable[[Answers, TextIO], None]] = {
    "lines": lines,
    "json": json_document,
    "csv": csv_rows,
}


def _as_json(file: str, answer: Prediction | BadImage) -> dict[str, object]:
    if isinstance(answer, BadImage):
        return {"file": file, "error": answer.reason}
    classes = [
        {"class": each.label, "index": each.index, "probability": each.probability} for each in answer.classes
    ]
    return {"file": file, "classes": classes}
