"""Options of one label an image, or of several, are refused for the other."""

import pytest

from perennial.base.config import check, read
from perennial.base.errors import ConfigError
from perennial.base.params import options
from perennial.base.params.edit_params import set_values

SEVERAL = {
    "dataset.task": "multilabel", "dataset.name": "tfrecord", "train.stop_metric": "map",
    "gate.min_accuracy": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            SEVERAL | {"train.stop_metric": "accuracy"},
            "stop_metric must be map or loss for dataset.task multilabel",
        ),
        (SEVERAL | {"train.class_weights": "balanced"}, "must be null .* use train.positive_weights"),
        (SEVERAL | {"evaluate.calibrate": True}, "evaluate.calibrate must be false .* use evaluate.threshold"),
        (SEVERAL | {"evaluate.max_error": 0.1}, "evaluate.max_error must be null .* use evaluate.threshold"),
        (
            SEVERAL | {"gate.traffic": "decides"},
            "gate.traffic must be null for dataset.task multilabel, .*; use gate.max_slice_drop",
        ),
        ({"train.stop_metric": "map"}, "stop_metric must be accuracy or loss or recall_at_5 .* multiclass"),
        ({"train.positive_weights": "balanced"}, "must be null .* multiclass, .* use train.class_weights"),
        ({"evaluate.threshold": 0.5}, "must be 'f1' for dataset.task multiclass, .*; use evaluate.max_error"),
        *(
            (
                {"evaluate.threshold": rule},
                r"evaluate.threshold must be f1, a number from 0 to 1, or \{precision: P\}",
            )
            for rule in (1.5, "best", {"recall": 0.5}, {"precision": 2}, {"precision": "0.9"}, True)
        ),
    ],
)
def test_what_needs_one_label_is_refused_for_several_and_what_needs_several_for_one(values, message):
    with pytest.raises(ConfigError, match=message):
        set_values(options.defaults(), values)


@pytest.mark.parametrize("rule", ["f1", 0.3, 1, {"precision": 0.9}])
def test_a_threshold_is_a_rule_or_a_number(rule):
    text = set_values(options.defaults(), SEVERAL | {"evaluate.threshold": rule}).text
    found = check(read(text)).model_dump()["evaluate"]["threshold"]
    assert found == rule
