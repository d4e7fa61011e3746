"""Reports of validations, their problems, and the configuration that judges records."""

from collections import Counter

from perennial.base.config.data import SeverityConfig, ValidateConfig


def config(severity="warn", **changes):
    """Judged by the limits of the tests, with one severity for all codes."""
    values = {
        "decode": "all", "near_duplicate_bits": 2, "max_class_ratio": 10, "max_label_drift": 0.05,
        "max_brightness_drift": 0.1,
        "severity": SeverityConfig(**dict.fromkeys(SeverityConfig.model_fields, severity)),
    }  # fmt: skip
    return ValidateConfig(**(values | changes))


def problem(code="data_crc", severity="error", **changes):
    place = {"file": "train.tfrecord", "record": 3, "offset": 99}
    return {"code": code, "severity": severity, **place, "message": "it is wrong", **changes}


def report(problems=(), counts=None, **statistics):
    """The content of validation.json, of data without pixels."""
    known = {
        "height": [28, 28], "width": [20, 28], "channels": [0, 0], "mean": None, "channel_mean": [],
        "channel_std": [], "bytes": 1234, "splits": {}, "duplicates": {}, "drift": None,
    }  # fmt: skip
    return {
        "ok": not any(one["severity"] == "error" for one in problems),
        "problems": list(problems),
        "problem_counts": counts or Counter(one["code"] for one in problems),
        "statistics": known | statistics,
    }
