"""The errors that perennial raises, for programs, each with its exit code."""

from perennial.base.errors import (
    ConfigError,
    DataError,
    InputsChanged,
    Interrupted,
    PerennialError,
    QualityError,
)

__all__ = ["ConfigError", "DataError", "InputsChanged", "Interrupted", "PerennialError", "QualityError"]
