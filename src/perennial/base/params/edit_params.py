"""Edit a params.yaml in place: add, remove or set keys, and apply presets; the rest stays byte for byte."""

import difflib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node

from perennial.base import files
from perennial.base.config import Config, check, read
from perennial.base.config.error_messages import REMOVED, by_key, inner_section, missing
from perennial.base.config.training import OPTIMIZERS, Sgd
from perennial.base.dvc import dvc_lock
from perennial.base.errors import ConfigError, printable
from perennial.base.params import options

PRESETS = Path(__file__).with_name("presets")
Key = tuple[str, ...]
OPTIONS = "train.optimizer_options"  # a mapping that is one value
REASON, LEAST = "# start: ", 30  # begins a comment of `perennial start`, and the room that one needs


@dataclass(frozen=True)
class Change:
    """A new text of params.yaml, and the keys that differ from the old one."""

    text: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    set: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        """Errors in the new text."""
        try:
            check(read(self.text))
        except ConfigError as error:
            return str(error).splitlines()
        return []


def change_file(
    file: Path,
    *,
    add_missing: bool = False,
    preset: str | None = None,
    values: Mapping[str, object] | None = None,
) -> Change:
    """Upgrade a params.yaml, apply a preset to it, then set values; an unchanged file is not written."""
    try:
        original = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    line_end = "\r\n" if "\r\n" in original else "\n"
    text = original.replace("\r\n", "\n")
    try:
        done = upgrade(text) if add_missing else Change(text)
        if preset is not None:
            applied = apply_preset(done.text, preset)
            done = replace(done, text=applied.text, set=applied.set)
            if problems := done.problems():
                raise ConfigError("\n".join(problems))  # noqa: TRY301 - worded below
        if values:
            assigned = set_values(done.text, values)
            done = replace(done, text=assigned.text, set=tuple(dict.fromkeys((*done.set, *assigned.set))))
    except ConfigError as error:
        lines = "\n".join(f"{file}: {line}" for line in str(error).splitlines())
        raise ConfigError(f"{lines}\n{file} was not changed") from error
    if done.text != text:
        files.write_bytes(file.resolve(), done.text.replace("\n", line_end).encode())
    return done


def upgrade(text: str) -> Change:
    """Remove keys of earlier versions, and add missing ones with their defaults and comments."""
    text = text if text.endswith("\n") else f"{text}\n"
    own, less = _without_optimizers(remove(text, REMOVED, options.defaults()))
    text = less.text
    old, root = read(text), _compose(text)
    added = [tuple(map(str, each["loc"])) for each in missing(Config, old)]
    edits = [_insertion(text, root, path) for path in added]
    for path in added:
        _section(old, path)[path[-1]] = options.values(path)
    text = _edited(text, edits, old)
    if own:
        text = _with_values(text, {tuple(OPTIONS.split(".")): (own, options.scalar(own))}).text
    return Change(text, added=tuple(map(".".join, added)), removed=less.removed)


def _without_optimizers(before: Change) -> tuple[dict[str, Any], Change]:
    """Remove an earlier version's settings of all optimizers; gives those of the chosen one that differ."""
    train = read(before.text).get("train")
    if not isinstance(train, dict) or "optimizers" not in train:
        return {}, before
    name = str(train.get("optimizer"))
    fields = OPTIMIZERS.get(name, Sgd).model_fields
    own = (train["optimizers"] or {}).get(name) or {}
    kept = {key: value for key, value in own.items() if key in fields and value != fields[key].default}
    done = remove(before.text, ["train.optimizers"], options.defaults())
    return kept, replace(done, removed=(*before.removed, *done.removed))


def remove(text: str, keys: Iterable[str], like: str) -> Change:
    """Remove keys with the comments above them, as far as the params.yaml `like` has the same ones."""
    old, root, template, removed = read(text), _compose(text), _compose(like), []
    for key in keys:
        path = tuple(key.split("."))
        if not (found := _find(root, path)):
            continue
        lines, first = text.splitlines(keepends=True), found[0].start_mark.line
        del _section(old, path)[path[-1]]
        removed.append(key)
        inside = _find(root, path[:-1])
        if inside and isinstance(inside[1], MappingNode) and inside[1].flow_style:
            edit = _cut_in_flow(inside[1].value, found)
        else:
            last = text.count("\n", 0, max(_end(found[1]) - 1, found[0].end_mark.index))
            known = _find(template, path)
            above = _comments(like.splitlines(), known[0].start_mark.line) if known else []
            own = _comments([line.rstrip("\n") for line in lines], first)
            while own and above and own.pop().strip() == above.pop().strip():
                first -= 1
            edit = (sum(map(len, lines[:first])), sum(map(len, lines[: last + 1])), "")
        text = _edited(text, [edit], old)
        root = _compose(text)
    return Change(text, removed=tuple(removed))


def _cut_in_flow(pairs: list[tuple[Node, Node]], pair: tuple[Node, Node]) -> tuple[int, int, str]:
    """The edit that removes a key of `{a: 1, b: 2}`, with the comma behind it, or before the last one."""
    number = pairs.index(pair)
    if pair != pairs[-1]:
        return pair[0].start_mark.index, pairs[number + 1][0].start_mark.index, ""
    return (pairs[number - 1][1].end_mark if number else pair[0].start_mark).index, pair[1].end_mark.index, ""


def _comments(lines: list[str], end: int) -> list[str]:
    start = end
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return lines[start:end]


def presets() -> dict[str, Path]:
    """The files of the presets, by name."""
    return {file.stem: file for file in sorted(PRESETS.glob("*.yaml"))}


def apply_preset(text: str, name: str) -> Change:
    """Set the keys of a preset, or of a YAML file; those that only other presets set get their defaults."""
    there = presets()
    if name.endswith(".yaml") and (own := Path(name)).is_file():
        there[name] = own
    if name not in there:
        near = difflib.get_close_matches(name, there, n=1)
        known = f"known: {', '.join(there)}, or a YAML file of your own"
        raise ConfigError(f"preset {name} does not exist; {f'did you mean {near[0]}?' if near else known}")
    leaves = {stem: dict(_leaves(file)) for stem, file in there.items()}
    chosen = {path: options.scalar(options.field_at(path).default) for each in leaves.values() for path in each}
    chosen |= leaves[name]
    return _with_values(text, {path: (read(f"x: {each}")["x"], each) for path, each in chosen.items()})


def preset_keys() -> set[Key]:
    """The keys that any preset sets."""
    return {path for file in presets().values() for path, _ in _leaves(file)}


def set_values(text: str, values: Mapping[str, object]) -> Change:
    """Set keys such as train.epochs to JSON values; a key that already has its value stays as it is written."""
    new = read(text)
    inside = {key: value for key, value in values.items() if key.startswith(f"{OPTIONS}.")}
    if inside and isinstance(before := values.get(OPTIONS, dvc_lock.value_at(new, OPTIONS)), dict):
        own = {**before, **{key.removeprefix(f"{OPTIONS}."): value for key, value in inside.items()}}
        values = {**{key: value for key, value in values.items() if key not in inside}, OPTIONS: own}
    for key, value in values.items():
        path = tuple(key.split("."))
        section = new
        for part in path[:-1]:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise ConfigError(f"{key} is not a key; {key.rpartition('.')[0]} is not a section")
        if isinstance(inner := section.get(path[-1]), dict) and _is_section(path):
            raise ConfigError(f"{key} is a section; set its keys, such as {key}.{next(iter(inner), '...')}")
        section[path[-1]] = value
    check(new)
    return _with_values(text, {tuple(key.split(".")): (new, _written(new)) for key, new in values.items()})


def write_reasons(text: str, reasons: Mapping[str, str | None]) -> str:
    """Write reasons as comments at keys, in place of the default ones, which None restores.

    What a person wrote there stays, and so does a key that shares its line with others.
    """
    root, edits = _compose(text), []
    for key, reason in reasons.items():
        path = tuple(key.split("."))
        if (found := _find(root, path)) is None or "\n" in text[found[0].start_mark.index : _end(found[1])]:
            continue
        start, default = _end(found[1]), options.line_comment(path)
        end = start + len(text[start:].partition("\n")[0])
        present = text[start:end].strip()
        if present != default and not present.startswith(REASON):
            continue
        room = options.WIDTH - (start - text.rfind("\n", 0, start))
        said = printable(reason or "").encode("ascii", "backslashreplace").decode()
        wanted = default
        if reason and room > LEAST:
            wanted = textwrap.shorten(f"{REASON}{said}", room, placeholder=" ...")
        if wanted != present:
            edits.append((start, end, f" {wanted}" if wanted else ""))
    return _edited(text, edits, read(text))


def _is_section(path: Key) -> bool:
    """Whether a key holds a section, and not a mapping as its value."""
    section: type[BaseModel] | None = Config
    for part in path:
        section = inner_section(by_key(section).get(part)) if section else None
    return section is not None


def _with_values(text: str, wanted: Mapping[Key, tuple[object, str]]) -> Change:
    """Set keys to values, each with its YAML text; a key that already has the value keeps its text."""
    values, root, edits, changed = read(text), _compose(text), [], []
    for path, (value, written) in wanted.items():
        key = ".".join(path)
        if (found := _find(root, path)) is None:
            raise ConfigError(f"{key} is missing; `perennial config --upgrade` adds it")
        section = _section(values, path)
        present = section[path[-1]]
        if present != value or isinstance(present, bool) != isinstance(value, bool):  # True is 1
            start, end = found[1].start_mark.index, _end(found[1])
            edits.append((start, end, written if end > start else f" {written}"))
            changed.append(key)
            section[path[-1]] = value
    return Change(write_reasons(_edited(text, edits, values), dict.fromkeys(changed)), set=tuple(changed))


def _written(value: object) -> str:
    """Write a value in YAML 1.2 as params.yaml does; as JSON where YAML would read another value."""
    plain = options.scalar(value)
    try:
        if read(f"x: [{plain}, 0]") == {"x": [value, 0]}:  # the key may stand in a line with others
            return plain
    except ConfigError:
        pass
    return json.dumps(value, ensure_ascii=False)


def _compose(text: str) -> MappingNode:
    root = YAML(typ="rt", pure=True).compose(text)
    if not isinstance(root, MappingNode):
        raise ConfigError("must hold sections")
    return root


def _find(root: MappingNode, path: Key) -> tuple[Node, Node] | None:
    """The nodes of a key and of its value."""
    found: tuple[Node, Node] | None = None
    node: Node = root
    for key in path:
        pairs = node.value if isinstance(node, MappingNode) else []
        found = next(((name, value) for name, value in pairs if name.value == key), None)
        if found is None:
            return None
        node = found[1]
    return found


def _insertion(text: str, root: MappingNode, path: Key) -> tuple[int, int, str]:
    """Find where to insert a key: after its predecessor in the models' order, or first in its section."""
    above = _find(root, path[:-1]) if len(path) > 1 else None
    section = above[1] if above and isinstance(above[1], MappingNode) else root
    order = list(by_key(Config if len(path) == 1 else inner_section(options.field_at(path[:-1])) or Config))
    present = {name.value: value for name, value in section.value}
    before = [present[key] for key in order[: order.index(path[-1])] if key in present]
    if section.flow_style:
        comma = ", " if section.value or path[-1] != order[0] else ""  # into `{}` all keys go, in order
        end = section.end_mark.index - 1
        return end, end, f"{comma}{path[-1]}: {json.dumps(options.values(path))}"
    column = section.value[0][0].start_mark.column
    lines = options.block(path, column)
    if not before:
        start = section.value[0][0].start_mark
        return start.index - start.column, start.index - start.column, lines
    end = text.index("\n", _end(before[-1]) - 1) + 1  # a block scalar ends behind its line break
    return end, end, f"\n{lines}" if len(path) == 1 else lines


def _end(node: Node) -> int:
    """The index after a node's last character; a block includes the comments that follow it."""
    if isinstance(node, CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _edited(text: str, edits: list[tuple[int, int, str]], expected: dict[str, Any]) -> str:
    """Apply all edits and check the resulting values; edits at one position keep their order."""
    parts, position = [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[position:start], new]
        position = end
    result = "".join(parts) + text[position:]
    if read(result) != expected:
        raise ConfigError(
            "cannot be changed in place; write each key on a line of its own, indented by section"
        )
    return result


def _leaves(file: Path) -> Iterator[tuple[Key, str]]:
    """The keys of a preset with their values as they are written."""
    text = file.read_text(encoding="utf-8")
    waiting: list[tuple[Key, Node]] = [((), _compose(text))]
    while waiting:
        path, node = waiting.pop(0)
        if isinstance(node, MappingNode) and (not path or _is_section(path)):
            waiting[:0] = [((*path, name.value), value) for name, value in node.value]
        else:
            yield path, text[node.start_mark.index : node.end_mark.index]


def _section(values: dict[str, Any], path: Key) -> dict[str, Any]:
    for key in path[:-1]:
        values = values[key]
    return values
