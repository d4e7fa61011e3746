"""The key dataset.table of params.yaml: a table of labels, and what its columns mean."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from perennial.base.choices import SPLITS, Split
from perennial.base.config.fields import Count, Section, kind

KEYS = "path, file, label, split, classes, unlabelled"


def _texts(value: Any) -> Any:
    """Write the keys of a mapping and the elements of a list as text, as a table holds them."""
    if isinstance(value, list):
        return [each if isinstance(each, str) else str(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _texts(each) if isinstance(each, dict) else each for key, each in value.items()}
    return value


def _splits(value: Any) -> Any:
    """Check what the values of a column of splits mean."""
    for words in value.values() if isinstance(value, dict) else ():
        for meant in words.values() if isinstance(words, dict) else ():
            if meant not in SPLITS:
                raise ValueError(f"must give train, validation or test for each value, got {meant!r}")
    return _texts(value)


Name = Annotated[str, Field(min_length=1)]
Column = str | Count  # its name, or its number from 1 in a table without a header
Words = Annotated[dict[str, Split], Field(min_length=1)]  # the split that each value means


class TableConfig(Section):
    """A table of labels: where it is, and which of its columns mean what."""

    path: (
        Name | Annotated[dict[Split, Name], Field(min_length=1)]
    )  # below dataset.path; or a table for each split
    file: Column | None = None
    label: Column | list[str] | None = None  # null: the class folders; a list: columns of 0 and 1
    split: Annotated[
        Column | Annotated[dict[str, Words], Field(min_length=1, max_length=1)] | None, BeforeValidator(_splits)
    ] = None  # null: that of the folders, or perennial splits
    classes: Name | None = None  # a list of classes that names numbers
    unlabelled: Annotated[list[str] | None, BeforeValidator(_texts)] = (
        None  # cells without a label; null: usual
    )

    @property
    def paths(self) -> dict[Split | None, str]:
        """The tables, each with the split that it is for."""
        if isinstance(self.path, str):
            return {None: self.path}
        return {split: self.path[split] for split in SPLITS if split in self.path}

    @property
    def has_header(self) -> bool:
        """Whether the first row of the table names its columns."""
        return not isinstance(self.file, int)

    @property
    def block(self) -> dict[str, Any]:
        """The value of dataset.table in params.yaml."""
        found = self.model_dump(mode="json")
        return {key: value for key, value in found.items() if value is not None or key in KEYS.split(", ")[:4]}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        columns = [self.file, *(self.label if isinstance(self.label, list) else [self.label])]
        columns.append(self.split if not isinstance(self.split, dict) else None)
        named = [column for column in columns if column is not None]
        by_split = isinstance(self.path, dict)
        if self.file is None:
            raise ValueError("needs the column of files: set file to its name")
        if len({isinstance(column, int) for column in named}) > 1:
            raise ValueError("names all columns by name, or all by number in a table without a header")
        if len(set(named)) < len(named):
            raise ValueError(f"uses a column twice: {named}")
        if isinstance(self.label, list) and len(self.label) < 2:
            raise ValueError("needs two or more columns of 0 and 1 in a list for label")
        if by_split and self.split is not None:
            raise ValueError("has a table for each split, so split must be null")
        if by_split and "train" not in self.path:
            raise ValueError("needs a table of the split train")
        if self.label is None and self.split is None and not by_split:
            raise ValueError("gives neither labels nor splits: set label or split to a column")
        return self


def _checked(value: Any) -> Any:
    """Check the mapping; its errors name the key inside."""
    if value is None or isinstance(value, TableConfig):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"must be null or a mapping with {KEYS}")  # noqa: TRY004 - pydantic takes it
    if unknown := value.keys() - set(KEYS.split(", ")):
        raise ValueError(f"has no key {min(map(str, unknown))}; its keys are {KEYS}")
    try:
        return TableConfig.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][:1]))
        rule = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
        raise ValueError(f"{f'{place}: ' if place else ''}{rule}") from None


Table = Annotated[TableConfig | None, BeforeValidator(_checked), kind(f"mapping with {KEYS}, or null")]
