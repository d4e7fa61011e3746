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


def digests(dataset):
    found = [digest for file in dataset.files for digest in (file.sha256, file.content_sha256)]
    return [digest for digest in found if digest is not None]


def test_the_choice_of_data_set_is_the_dict_of_data_sets():
    assert get_args(choices.Dataset) == tuple(DATASETS)


@every_dataset
def test_every_file_has_a_plain_name_of_its_own_a_size_and_digests(dataset):
    names = [file.name for file in dataset.files]
    assert (len(set(names)), [name for name in names if "/" in name]) == (len(names), [])
    assert all(file.bytes > 0 for file in dataset.files)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests(dataset))
    assert len(digests(dataset)) == len(set(digests(dataset)))


@every_dataset
def test_data_come_from_mirrors_that_cannot_be_read_on_the_way_or_are_ones_own(dataset):
    assert (bool(dataset.mirrors) and bool(dataset.files)) != (dataset.collect is not None)
    assert all(re.match("(https|file)://.*/$", mirror) for mirror in dataset.mirrors)


@every_dataset
def test_another_process_can_be_sent_how_to_read(dataset):
    assert pickle.loads(pickle.dumps(dataset)) == dataset


@every_dataset
def test_facts_and_generator_are_one_readable_file(dataset):
    assert len(Path(inspect.getfile(dataset.read)).read_text().splitlines()) <= 90
