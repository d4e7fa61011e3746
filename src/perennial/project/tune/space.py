"""The settings that a search tries: ranges and choices of options of params.yaml.

`KEY=LOW..HIGH` is a range, of whole numbers where the option takes only these, `:log` makes it logarithmic, and
`KEY=A,B,C` are choices. All are checked against the options' own types and limits before anything starts.
"""

import copy
import difflib
import functools
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perennial.base import config, documents
from perennial.base.config import Config
from perennial.base.config.fields import shown
from perennial.base.config.training import OPTIMIZERS
from perennial.base.errors import ConfigError
from perennial.base.params import options
from perennial.base.params.edit_params import OPTIONS

DIGITS = 4  # significant ones of a fraction, so that params.yaml stays readable
SECTIONS = ("model", "preprocessing", "train")
OTHER_DATA = "it changes the data, which all trials share"
OTHER_MODEL = "it does not change how the model is trained"
OTHER_START = "it changes the initial weights, which all trials share"
OTHER_RULE = "trials are compared by it"
# Keys of these sections that cannot be searched, and why.
REFUSED = {
    "model.labels_offset": OTHER_DATA,
    "model.weights": OTHER_START,
    "model.weights_url": OTHER_START,
    "train.warm_start": OTHER_START,
    "train.teacher": OTHER_START,
    "train.stop_metric": OTHER_RULE,
    "train.epochs_between_evals": OTHER_RULE,
    "train.steps_between_evals": OTHER_RULE,
    "train.seed": "the best seed on validation is luck, which a test does not confirm",
    "train.synthetic_data": OTHER_DATA,
    **dict.fromkeys(
        (f"train.{key}" for key in ("devices", "all_reduce", "intra_op_threads", "inter_op_threads", "cache")),
        OTHER_MODEL,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """An option with the values that it may have: those from `low` to `high`, or `choices`."""

    key: str
    text: str  # as on the command line
    low: float = 0
    high: float = 0
    whole: bool = False  # only whole numbers
    log: bool = False
    choices: tuple[str, ...] = ()  # as JSON

    @property
    def ends(self) -> list[Any]:
        """The values to check: all choices, or the ends of the range."""
        return [json.loads(each) for each in self.choices] or [self.low, self.high]

    def value(self, drawn: Any) -> Any:
        """The value of the option for one that was drawn: a choice, or a number, a fraction with few digits."""
        if self.choices:
            return json.loads(drawn)
        if self.whole:
            return int(drawn)
        return min(max(float(f"{drawn:.{DIGITS}g}"), self.low), self.high)

    def drawn(self, value: Any) -> Any:
        """The reverse of `value`; None if the dimension does not have the value."""
        if self.choices:
            return next((text for text in self.choices if _same(json.loads(text), value)), None)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if number and self.low <= value <= self.high else None


def parse(texts: Iterable[str], values: Mapping[str, Any]) -> list[Dimension]:
    """The dimensions of `KEY=RANGE` texts, checked with the other values of params.yaml."""
    found: dict[str, Dimension] = {}
    for text in texts:
        key, separator, given = (part.strip() for part in text.partition("="))
        if not separator or not key or not given:
            raise ConfigError(
                "--search takes KEY=LOW..HIGH, such as train.learning_rate=1e-4..1e-1:log, or KEY=A,B, "
                f"got {text}"
            )
        _require_searchable(key)
        if key in found:
            raise ConfigError(f"--search {key}: the key is there twice; name all of its values in one --search")
        found[key] = _range(key, given, values) if ".." in given else _choices(key, given, values)
        _require_valid(found[key], values)
    return list(found.values())


def default(config: Config) -> list[str]:
    """The search where none is given, as on the command line; the same before and after the best is written."""
    if config.model.weights or config.train.warm_start.path:
        return [
            "train.learning_rate=1e-4..3e-2:log",
            "train.batch_size=8,16,32",
            "train.weight_decay=1e-6..1e-2:log",
            "train.label_smoothing=0.0..0.2",
        ]
    return [
        "train.learning_rate=1e-4..1e-1:log",
        *([] if config.train.optimizer_options else ["train.optimizer=adam,momentum"]),
        "train.batch_size=32,64,128",
        "train.label_smoothing=0.0..0.2",
    ]


def with_values(values: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a params.yaml with other values of some keys."""
    changed = copy.deepcopy(dict(values))
    for key, value in chosen.items():
        *sections, last = key.split(".")
        section = changed
        for name in sections:
            section = section[name]
        section[last] = value
    return changed


def present(dimensions: Sequence[Dimension], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the searched keys in a params.yaml."""
    settings = config.check(dict(values)).train.optimizer_settings
    return {
        each.key: settings.get(each.key.removeprefix(f"{OPTIONS}."))
        if each.key.startswith(f"{OPTIONS}.")
        else functools.reduce(operator.getitem, each.key.split("."), values)
        for each in dimensions
    }


def written(value: object) -> str:
    """A value as a person writes it after `--search KEY=`."""
    return value if isinstance(value, str) else json.dumps(value)


def _same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)  # True is 1


def _require_searchable(key: str) -> None:
    known = [each.key for each in options.options()]
    known += [f"{OPTIONS}.{name}" for section in OPTIMIZERS.values() for name in section.model_fields]
    if key not in known:
        inner = next((each for each in known if each.startswith(f"{key}.")), None)
        near = [inner] if inner else difflib.get_close_matches(key, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else "; `perennial docs options` lists the keys"
        raise ConfigError(f"--search {key}: {'is a section' if inner else 'there is no such key'}{meant}")
    section = key.partition(".")[0]
    why = next((why for name, why in REFUSED.items() if key == name or key.startswith(f"{name}.")), None)
    if section not in SECTIONS:
        why = OTHER_DATA if section in {"dataset", "validate"} else OTHER_MODEL
    if why:
        raise ConfigError(
            f"--search {key}: cannot be searched: {why}; `perennial config --set {key}=VALUE` sets it"
        )


def _choices(key: str, given: str, values: Mapping[str, Any]) -> Dimension:
    try:
        choices = documents.parse_yaml(f"[{given}]")
    except ValueError as error:
        raise ConfigError(f"--search {key}: {given} is not a list of values such as adam,momentum") from error
    texts = tuple(dict.fromkeys(json.dumps(each) for each in choices))
    if len(texts) < 2:
        hint = ""
        if choices and _takes(key, choices[0], values):
            hint = f"; `perennial config --set {key}={given}` sets one"
        elif choices and isinstance(choices[0], list):
            hint = "; leave out the brackets"
        raise ConfigError(
            f"--search {key}: needs two values or more, or a range such as 0.1..0.5, got {given}{hint}"
        )
    return Dimension(key=key, text=given, choices=texts)


def _range(key: str, given: str, values: Mapping[str, Any]) -> Dimension:
    span, _, scale = given.partition(":")
    if "..." in span:  # .1 would be a tenth
        raise ConfigError(f"--search {key}: a range has two dots, such as 0.1..0.5, got {given}")
    low, high = (_number(key, each, given) for each in span.split("..", 1))
    if scale not in {"", "log"}:
        raise ConfigError(f"--search {key}: after the range there may be :log, got :{scale}")
    if low >= high:
        raise ConfigError(f"--search {key}: the first number must be below the second, got {given}")
    if scale and low <= 0:
        raise ConfigError(f"--search {key}: a logarithmic range must begin above 0, got {given}")
    whole = isinstance(low, int) and isinstance(high, int) and not _takes(key, (low + high) / 2 + 0.25, values)
    if not whole:
        low, high = float(low), float(high)
    return Dimension(key=key, text=given, low=low, high=high, whole=whole, log=bool(scale))


def _number(key: str, text: str, given: str) -> float | int:
    try:
        number = documents.parse_yaml(text)
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ConfigError(
            f"--search {key}: a range is LOW..HIGH with two numbers, such as 0.1..0.5, got {given}"
        )
    return number


def _takes(key: str, value: object, values: Mapping[str, Any]) -> bool:
    try:
        config.check(with_values(values, {key: value}))
    except ConfigError:
        return False
    return True


def _require_valid(dimension: Dimension, values: Mapping[str, Any]) -> None:
    for value in dimension.ends:
        try:
            config.check(with_values(values, {dimension.key: value}))
        except ConfigError as error:
            lines = "\n".join(
                f"--search {dimension.key}={shown(value)}: {each}" for each in str(error).splitlines()
            )
            raise ConfigError(f"{lines}\nnothing was started") from error
