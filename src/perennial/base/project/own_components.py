"""Components of a project: modules in its folder `components`, whose objects params.yaml names.

`components.nets:tiny` is the object `tiny` in components/nets.py. dvc.yaml lists `components` as a dependency
of the stages that load it, and only `components/data` for those that read the original data, so that an edit of
a network does not convert the images again.
"""

import ast
import difflib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from perennial.base.config.fields import is_component
from perennial.base.dvc import dvc_digests, dvc_lock
from perennial.base.errors import ConfigError, PerennialError, listed
from perennial.base.layout import Project
from perennial.base.project import source_code

FOLDER = source_code.COMPONENTS
DATA = "components/data"  # all that the stages download and convert may load
DATASET = "dataset.name"
KEYS = (DATASET, "preprocessing.name", "model.name", "train.optimizer", "train.schedule.name", "export.formats")
SHOWN = 5
_keys: dict[str, str] = {}  # the parameter that named a component, for messages
_running: list[tuple[str, tuple[str, ...]]] = []  # the stage of this process and its code, as dvc.yaml has it


@dataclass(frozen=True)
class Component:
    """An object in a module of a project."""

    name: str  # as in params.yaml
    root: Path

    @property
    def module(self) -> str:
        """The name of its module."""
        return self.name.partition(":")[0]

    @property
    def attribute(self) -> str:
        """The name of the object in its module."""
        return self.name.partition(":")[2]

    @property
    def file(self) -> Path:
        """The file of its module, relative to the project; a package's is its __init__.py."""
        path = Path(*self.module.split("."))
        return path / "__init__.py" if (self.root / path).is_dir() else path.with_suffix(".py")


def named(values: Mapping[str, Any]) -> dict[str, str]:
    """The components that the sections of a params.yaml name, by key."""
    found = {}
    for key in KEYS:
        value = dvc_lock.value_at(values, key)
        for each in value if isinstance(value, list | tuple) else [value]:
            if is_component(each):
                found[each] = key
    return found


def files_of(values: Mapping[str, Any], root: Path) -> dict[str, str]:
    """The file of each component that the sections of a params.yaml name, by key."""
    return {key: Component(name, root).file.as_posix() for name, key in named(values).items()}


def require(values: Mapping[str, Any], root: Path) -> None:
    """Check, without running them, that the components which params.yaml names exist."""
    found = named(values)
    _keys.update(found)
    for name, key in found.items():
        component = Component(name, root)
        if key == DATASET and not component.module.startswith(f"{DATA.replace('/', '.')}."):
            raise ConfigError(
                f"{key}: {name} must be in {DATA}/, on which the stages download and convert depend; move its "
                f"file there, and write {key}: components.data.{component.module.split('.')[-1]}:"
                f"{component.attribute}"
            )
        _require_file(component, key)
        _require_attribute(component, key)


def _require_file(component: Component, key: str) -> None:
    if (component.root / component.file).is_file():
        return
    parts = (file.relative_to(component.root) for file in sorted((component.root / FOLDER).rglob("*.py")))
    known = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in parts]
    near = difflib.get_close_matches(component.module, known, n=1)
    there = f"the modules there are {listed(known, SHOWN)}" if known else f"{FOLDER}/ has no modules"
    meant = f"did you mean {near[0]}:{component.attribute}?" if near else there
    raise ConfigError(
        f"{key}: {component.name} names {component.file}, which does not exist in {component.root}; {meant}"
    )


def _require_attribute(component: Component, key: str) -> None:
    """Check that the module has the object, unless the text of the module does not tell."""
    try:
        body = ast.parse((component.root / component.file).read_bytes()).body
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{component.file}:{line}" if line else str(component.file)
        raise ConfigError(
            f"{key}: {where}: {type(error).__name__}: {getattr(error, 'msg', None) or error}"
        ) from error
    known = set(_defined(body))
    if component.attribute in known or known & {"*", "__getattr__"}:
        return
    own = [each for each in body if not isinstance(each, ast.Import | ast.ImportFrom)]
    names = sorted({name for each in own for name in islice(_defined([each]), 1)})  # without those inside
    near = difflib.get_close_matches(component.attribute, names, n=1)
    meant = f"did you mean {near[0]}?" if near else f"it has {listed(names, SHOWN) or 'no names'}"
    raise ConfigError(f"{key}: {component.file} does not define {component.attribute}; {meant}")


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that a module may have, and those in its functions, without running it."""
    for node in (each for statement in body for each in ast.walk(statement)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def load(name: str, expected: str, fits: Callable[[object], bool]) -> Any:
    """Import a component of the project; `expected`: what an object is that `fits`."""
    component = Component(name, Project.find().root)
    key = _keys.get(name, "")
    where = f"{key}: {component.file}" if key else str(component.file)
    _require_file(component, key or "component")
    _require_attribute(component, key or "component")
    if str(component.root) not in sys.path:  # for this process, and those that it starts
        sys.path.insert(0, str(component.root))
    try:
        _require_own(importlib.import_module(FOLDER), component.root)
        module = importlib.import_module(component.module)
        found = getattr(module, component.attribute)
    except PerennialError:
        raise
    except (Exception, SystemExit) as error:
        raise blamed(error, component.root, key) or ConfigError(f"{where}: {_text(error)}") from error
    if not fits(found):
        raise ConfigError(f"{where}: {component.attribute} is {described(found)}, expected {expected}")
    _require_listed()
    return found


def is_function(found: object) -> bool:
    """Whether an object can be called, and is no class."""
    return callable(found) and not isinstance(found, type)


def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a component."""
    try:
        with suppress(ValueError):  # Python does not know the arguments of some classes
            inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise refused(name, f"cannot take the {len(arguments)} arguments that it gets: {error}") from error
    with naming_component():
        return function(*arguments)


def refused(name: str, why: str) -> ConfigError:
    """An error of a component in one line, such as `returned None, expected a keras.Model`."""
    file = Component(name, _root()).file
    return ConfigError(f"{_keys.get(name, 'component')}: {name} in {file} {why}")


def described(found: object) -> str:
    """What an object is, for a message: `the class A` or `an object of type int`."""
    if found is None:
        return "None"
    return f"the class {found.__name__}" if isinstance(found, type) else f"an object of {type(found).__name__}"


def _root() -> Path:
    """The folder of the components that this process has imported; else that of the project."""
    package = sys.modules.get(FOLDER)
    return Path(next(iter(package.__path__))).parent if package else Project.find().root


def _require_own(package: ModuleType, root: Path) -> None:
    expected = (root / FOLDER).resolve()
    found = Path(next(iter(package.__path__))).resolve()
    if found != expected:
        raise ConfigError(
            f"{FOLDER} was imported from {found}, expected {expected}: nothing was run; remove the other "
            f"folder from PYTHONPATH, and let {FOLDER}/__init__.py exist here"
        )


def loaded() -> set[Path]:
    """The files of components that this process has imported and that hold code."""
    modules = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] == FOLDER]
    found = {Path(file).resolve() for each in modules if (file := getattr(each, "__file__", None))}
    return {
        file
        for file in found
        if file.is_file() and source_code.facts(file.read_bytes()).digest != source_code.NOTHING
    }


def _require_listed() -> None:
    """Check that dvc.yaml lists all components that the stage has loaded."""
    if not _running:
        return
    stage, deps = _running[0]
    root = Project.find().root.resolve()
    folders = [Path(path).resolve() for path in deps]
    other = [file for file in loaded() if not any(file.is_relative_to(folder) for folder in folders)]
    if other:
        mine = [folder.relative_to(root).as_posix() for folder in folders if folder.is_relative_to(root)]
        own = [path for path in mine if path.startswith(FOLDER)]
        where = listed([file.relative_to(root) for file in sorted(other)], SHOWN)
        remedy = (
            f"move it to {DATA}/" if own == [DATA] else f"add {FOLDER} to the `deps` of {stage} in dvc.yaml"
        )
        raise ConfigError(
            f"{where} is not among the dependencies of {stage} in dvc.yaml, so an edit of it would not run "
            f"{stage} again; nothing was recorded; {remedy}"
        )


def files(root: Path) -> list[Path]:
    """All files of a project's components but those of its data sets, which end before a training starts."""
    found = dvc_digests.files_of(root / FOLDER) if (root / FOLDER).is_dir() else {}
    return sorted(file for file in found.values() if not file.is_relative_to(root / DATA))


def blamed(error: BaseException, root: Path, key: str = "") -> PerennialError | None:
    """The error as one line with the component's file and line; None if no component took part in it."""
    if isinstance(error, PerennialError):
        return None
    place = _place(error, root / FOLDER)
    if place is None:
        return None
    file, line = place
    where = f"{Path(file).relative_to(root).as_posix()}:{line}"
    text = f"{key}: {where}: {_text(error)}" if key else f"{where}: {_text(error)}"
    # What a file or a server refuses may work later.
    return PerennialError(text) if isinstance(error, OSError) else ConfigError(text)


def _place(error: BaseException, folder: Path) -> tuple[str, int] | None:
    """The last line of a component that an error went through."""
    inside = str(folder) + "/"
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(inside):
        return str(error.filename), error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno or 1) for frame in frames if frame.filename.startswith(inside)]
    # TensorFlow runs a translation of a function, and names the original in the message.
    quoted = re.findall(rf'File "({re.escape(inside)}[^"]+)", line (\d+)', str(error))
    places += [(file, int(line)) for file, line in quoted]
    if places:
        return places[-1]
    cause = error.__cause__ or error.__context__
    return _place(cause, folder) if cause is not None else None


def _text(error: BaseException) -> str:
    """The kind and the message of an error in one line, without the frames that TensorFlow adds."""
    message = str(error)
    if message.startswith("Graph execution error:"):
        message = message.rpartition("\n\n")[2].partition("\t [[")[0]
    if "in user code:" in message or "Traceback" in message:
        last = [line.strip() for line in message.splitlines() if line.strip()]
        found = [line for line in last if re.match(r"\w*(Error|Exception)\b", line)]
        return found[0] if found else last[-1]
    kind, short = type(error).__name__, " ".join(message.split())
    return f"{kind}: {short}" if short else kind


@contextmanager
def checked(stage: str, deps: Iterable[str] | None) -> Iterator[None]:
    """Let a stage use components, only of its `deps` if dvc.yaml has it, and name them in errors."""
    if deps is not None:
        _running[:] = [(stage, tuple(deps))]
    try:
        with naming_component():
            yield
        _require_listed()
    finally:
        _running.clear()


@contextmanager
def naming_component() -> Iterator[None]:
    """Name the file and the line of a component in errors of the block that come from one."""
    try:
        yield
    except PerennialError:
        raise
    except (Exception, SystemExit) as error:
        if (found := blamed(error, _root())) is None:
            raise
        raise found from error
