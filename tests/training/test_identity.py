"""Which trainings continue each other."""

import pytest

from perennial.training import identity


@pytest.fixture
def digest(load):
    def of(manifest="data", weights=None, **values):
        return identity.digest(load(**values), manifest=manifest, weights=weights)

    return of


@pytest.mark.parametrize(
    "values",
    [
        {"train.seed": 1},
        {"train.epochs": 31},
        {"train.batch_size": 32},
        {"train.memory_mb": 1},
        {"train.precision": "bfloat16"},
        {"train.optimizers.adam.beta_1": 0.8},
        {"model.name": "lenet"},
        {"model.dropout": 0.1},
        {"preprocessing.image_size": 16},
    ],
    ids=str,
)
def test_what_changes_the_weights_makes_another_training(digest, values):
    assert digest() != digest(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"train.devices": "cpu:2"},
        {"train.all_reduce": "nccl"},
        {"train.intra_op_threads": 1},
        {"train.cache": "none"},
        {"checkpoints.interval_s": 1.0},
        {"logging.every_steps": 1},
        {"paths.model": "elsewhere"},
        {"gate.min_accuracy": 0.5},
        {"evaluate.batch_size": 1},
    ],
    ids=str,
)
def test_where_and_how_the_work_is_done_makes_no_other_training(digest, values):
    assert digest() == digest(**values)


def test_other_data_code_or_first_weights_make_another_training(digest, monkeypatch):
    digests = {digest(), digest(manifest="other data"), digest(weights="some")}
    monkeypatch.setattr(identity, "_code", dict)
    assert len(digests | {digest()}) == 4


def test_every_module_that_decides_about_weights_is_looked_at():
    found = identity._code()
    expected = {"training/trainer.py", "models/lenet.py", "preprocessing/vgg.py", "records/splits.py"}
    assert expected <= found.keys()
    assert all(len(digest) == 64 for digest in found.values())
