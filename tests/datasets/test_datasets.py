"""The facts of every data set."""

import re

import pytest

from perennial.datasets import DATASETS

every_dataset = pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)


@every_dataset
def test_every_file_has_digests_in_hexadecimal(dataset):
    digests = [digest for file in dataset.files for digest in (file.sha256, file.content_sha256)]
    assert [digest for digest in digests if not re.fullmatch("[0-9a-f]{64}", digest)] == []


@every_dataset
def test_no_two_files_share_a_digest(dataset):
    digests = [digest for file in dataset.files for digest in (file.sha256, file.content_sha256)]
    assert len(digests) == len(set(digests))


@every_dataset
def test_file_names_are_unique_and_plain(dataset):
    names = [file.name for file in dataset.files]
    assert (len(set(names)), [name for name in names if "/" in name]) == (len(names), [])


@every_dataset
def test_mirrors_end_in_a_slash(dataset):
    assert [mirror[-1:] for mirror in dataset.mirrors or ("",)] == ["/"] * max(len(dataset.mirrors), 1)


@every_dataset
def test_mirrors_are_addresses_that_cannot_be_read_on_the_way(dataset):
    assert {mirror.split("://")[0] for mirror in dataset.mirrors} <= {"https", "file"}


@every_dataset
def test_classes_are_unique(dataset):
    assert len(dataset.classes) == len(set(dataset.classes)) >= 2


@every_dataset
def test_class_names_fit_on_a_line_of_the_labels(dataset):
    assert [name for name in dataset.classes if not name or not name.isprintable()] == []
