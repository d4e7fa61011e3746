"""The arguments of a command: `KEY=VALUE`, JSON, and options that it does not have."""

import difflib
import re
import shlex
from typing import Any

from typer.core import TyperCommand

from perennial.base import documents
from perennial.base.config.fields import shown
from perennial.base.errors import ConfigError, printable

SIMILAR = 0.8  # an option that is as similar as this to a known one is a typing error
KEY_VALUE = re.compile(r"[a-z][\w.-]*=", re.IGNORECASE)


class ExplainingCommand(TyperCommand):
    """A command. If an unknown option means a key of params.yaml, the error explains how to set it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of a process."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", "")
            if "unexpected extra argument" in getattr(error, "message", ""):
                self._explain(error, next(filter(KEY_VALUE.match, given), ""), given)
            elif hasattr(error, "possibilities"):  # no such option
                self._explain(error, next((each for each in given if each.startswith(option)), ""), given)
            raise

    def _explain(self, error: Any, unknown: str, given: list[str]) -> None:
        """Add the keys that an unknown argument may mean to its error, unless it looks like an own option."""
        own = [name for parameter in self.params for name in parameter.opts]
        option, _, value = unknown.partition("=")
        if not unknown or difflib.get_close_matches(option, own, n=1, cutoff=SIMILAR):
            return
        keys = self._meant(option.lstrip("-").replace("-", "_"), settable="--set" in own)
        if not keys:
            return
        following = "" if value else next(iter(given[given.index(unknown) + 1 :]), "")
        value = value or ("VALUE" if following.startswith("-") else following) or "VALUE"
        how = "perennial config --set" if "--set" not in own else "--set"
        choices = " or ".join(f"`{how} {printable(shlex.quote(f'{key}={value}'))}`" for key in keys)
        error.message += f". A key of params.yaml is set by {choices}"
        error.possibilities = None  # unlike ones, such as --help

    def _meant(self, name: str, *, settable: bool) -> list[str]:
        """The keys that a name may mean; to a command that sets none, only a full name of one."""
        from perennial.base.config import error_messages
        from perennial.base.params import options

        keys = error_messages.of_option(name, [each.key for each in options.options()], self.name or "")
        return keys if settable else [key for key in keys if key.endswith(f".{name}")]


def key_and_value(text: str) -> tuple[str, object]:
    """The key and the value of `KEY=VALUE`; the value is YAML 1.2, as in params.yaml."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set takes KEY=VALUE, such as train.epochs=2, got {shown(text)}")
    try:
        return key.strip(), documents.parse_yaml(value)
    except ValueError as error:
        raise ConfigError(f"--set {key.strip()}: the value is not valid YAML, got {shown(value)}") from error


def option_object(option: str, text: str) -> dict[str, Any]:
    """Parse the value of an option that takes a JSON object."""
    try:
        return dict(documents.parse_json(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{option} must be a JSON object: {error}") from error
