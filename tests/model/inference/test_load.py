"""Which model is loaded, and what is no model."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.exports import list_files
from support.inference import CLASSES, abstain
from support.raw import picture

import perennial
from perennial.base.errors import DataError
from perennial.data.images import accept, png
from perennial.model.export_layout import CARD
from perennial.release.publishing import publish_to_bucket as publishing
from perennial.release.publishing.publish import verified_digests
from perennial.release.publishing.version_layout import AllowedExport

SOURCE = Path(perennial.__file__).parents[1]
IMAGE = picture(3, 24)


@pytest.fixture
def export(world, tmp_path):
    """A copy of the export that a test may harm."""
    return Path(shutil.copytree(world.folder, tmp_path / "export"))


def test_an_export_knows_its_classes(classifier) -> None:
    assert classifier.classes == CLASSES


def test_only_a_line_feed_ends_the_name_of_a_class(export) -> None:
    names = ("cat\r", "a\rdog", "a bird\u2028owl")
    lines = "".join(f"{number}:{name}\n" for number, name in enumerate(names))
    (export / "assets" / "labels.txt").write_bytes(lines.encode())
    assert perennial.load(export).classes == names


def test_an_answer_below_the_threshold_is_unknown(classifier, export) -> None:
    images = [picture(number, 24) for number in range(4)]
    known = classifier.predict(images)
    threshold = np.mean(sorted(each.probability for each in known)[-2:])
    found = perennial.load(abstain(export, float(threshold))).predict(images)
    assert [each.unknown for each in found] == [each.probability < threshold for each in known]
    assert [each.label for each in found if each.unknown] == ["unknown"] * 3
    assert [each.classes for each in found] == [each.classes for each in known]


def test_large_images_are_reduced_as_in_the_records_of_the_model(export) -> None:
    image = picture(3, 400)
    as_they_are = perennial.load(export).predict(image)[0].probabilities
    (export / CARD).parent.mkdir(exist_ok=True)
    (export / CARD).write_text('{"input": {"transparency": "drop", "max_side": 64}}')
    reduced = accept.smaller(png.encode(image), 64)
    found, expected = perennial.load(export).predict([image, reduced])
    assert found.probabilities.tolist() == expected.probabilities.tolist()
    assert found.probabilities.tolist() != as_they_are.tolist()


def test_a_publish_folder_means_its_current_version(world, tmp_path) -> None:
    shutil.copytree(world.folder, tmp_path / "published" / "1")
    (tmp_path / "published" / "2").mkdir()
    (tmp_path / "published" / "current").symlink_to("1")
    for path in (tmp_path / "published", tmp_path / "published" / "current", tmp_path / "published" / "1"):
        (answer,) = perennial.load(path).predict(IMAGE)
        np.testing.assert_allclose(answer.probabilities, world.expected(IMAGE), atol=1e-5)


def test_an_s3_url_means_its_current_version(export, tmp_path, bucket, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    list_files(export)
    publishing.add(
        url := f"s3://{bucket.name}/models",
        AllowedExport(export=export, digests=verified_digests(export), decision={}, provenance=b"{}"),
    )
    assert perennial.load(url).classes == CLASSES


def test_a_folder_of_any_name_is_loaded(export) -> None:
    odd = export.rename(export.with_name("a [b]*?\n"))
    assert perennial.load(str(odd)).classes == CLASSES


def test_a_model_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match=r"absent does not exist; `dvc repro export` makes the export"):
        perennial.load(tmp_path / "absent")


def test_a_folder_without_a_model_is_no_export(tmp_path) -> None:
    with pytest.raises(DataError, match=r"holds neither saved_model.pb nor current/saved_model.pb"):
        perennial.load(tmp_path)


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


HARM = {
    "half a graph": lambda folder: half(folder / "saved_model.pb"),
    "no graph in the file": lambda folder: (folder / "saved_model.pb").write_bytes(b""),
    "half the weights": lambda folder: half(next((folder / "variables").glob("*.data-*"))),
    "no weights": lambda folder: shutil.rmtree(folder / "variables"),
    "no labels": lambda folder: (folder / "assets" / "labels.txt").unlink(),
    "a label too few": lambda folder: (folder / "assets" / "labels.txt").write_text("0:cat\n1:dog\n"),
    "labels in disorder": lambda folder: (folder / "assets" / "labels.txt").write_text("0:a\n2:b\n1:c\n"),
    "labels without numbers": lambda folder: (folder / "assets" / "labels.txt").write_text("a\nb\nc\n"),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_a_model_that_is_not_whole_is_a_data_error(export, harm) -> None:
    harm(export)
    with pytest.raises(DataError, match="export"):
        perennial.load(export)


def test_a_model_of_another_program_is_no_export(tmp_path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    (tmp_path / "other" / "assets" / "labels.txt").write_text("0:a\n")
    with pytest.raises(DataError, match="has no signature classify, classify_bytes"):
        perennial.load(tmp_path / "other")


def test_importing_the_package_imports_no_tensorflow() -> None:
    code = "import sys, perennial; print(callable(perennial.load), 'tensorflow' in sys.modules)"
    environment = {"PYTHONPATH": str(SOURCE)}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    assert shown.stdout == "True False\n"
