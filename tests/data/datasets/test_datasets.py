"""The facts of every data set."""

import inspect
import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

from perennial.base import choices
from perennial.data.datasets import DATASETS

every_dataset = pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)


def originals(dataset):
    return (*dataset.files, *dataset.alternatives)


def digests(dataset):
    found = [digest for file in originals(dataset) for digest in (file.sha256, file.content_sha256)]
    return [digest for digest in found if digest is not None]


def test_the_choice_of_data_set_is_the_dict_of_data_sets():
    assert get_args(choices.Dataset) == tuple(DATASETS)


@every_dataset
def test_every_file_has_digests_in_hexadecimal(dataset):
    assert [digest for digest in digests(dataset) if not re.fullmatch("[0-9a-f]{64}", digest)] == []


@every_dataset
def test_no_two_files_share_a_digest(dataset):
    assert len(digests(dataset)) == len(set(digests(dataset)))


@every_dataset
def test_file_names_are_unique_and_plain(dataset):
    names = [file.name for file in originals(dataset)]
    assert (len(set(names)), [name for name in names if "/" in name]) == (len(names), [])


@every_dataset
def test_every_file_says_how_large_it_is(dataset):
    assert [file.name for file in originals(dataset) if file.bytes <= 0] == []


@every_dataset
def test_data_come_from_mirrors_or_are_ones_own(dataset):
    assert (bool(dataset.mirrors) and bool(dataset.files)) != (dataset.collect is not None)


@every_dataset
def test_mirrors_end_in_a_slash(dataset):
    assert [mirror for mirror in dataset.mirrors if not mirror.endswith("/")] == []


@every_dataset
def test_mirrors_are_addresses_that_cannot_be_read_on_the_way(dataset):
    assert {mirror.split("://")[0] for mirror in dataset.mirrors} <= {"https", "file"}


@every_dataset
def test_another_process_can_be_sent_how_to_read(dataset):
    assert pickle.loads(pickle.dumps(dataset)) == dataset


@every_dataset
def test_facts_and_generator_are_one_readable_file(dataset):
    assert len(Path(inspect.getfile(dataset.read)).read_text().splitlines()) <= 70
