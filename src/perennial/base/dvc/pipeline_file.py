"""The dvc.yaml of a project that holds no source of perennial, made from the one of this repository.

In place of the files of `src/`, each stage has a digest of its code, in code.yaml, as a parameter.
"""

import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from perennial.base.errors import PerennialError
from perennial.base.layout import CODE_DIGESTS as FILE

HEADER = """\
# The stages and their dependencies. Values come from params.yaml, and commands are stages of `perennial`. A
# stage runs again if what it depends on has changed: files, parameters, the versions of packages in
# requirements/, and the code of perennial, of which code.yaml has a digest for each stage.
#
# DVC removes the outputs of a stale stage before it starts the stage, also files that no stage made; `perennial
# run` refuses such paths.

"""
SHARED = (FILE, "requirements/", "components", "src/")  # what lies in the folder of all pipelines
WIDTH = 110


def of_project(text: str) -> str:
    """The dvc.yaml of a project, from this repository's."""
    _, found, rest = text.partition("\nstages:\n")
    if not found:
        raise PerennialError("dvc.yaml has no `stages:`; a project's is made from it")
    content = _yaml().load(f"stages:\n{rest}")
    for name, stage in content["stages"].items():
        deps = stage["deps"]
        for file in [dep for dep in deps if dep.startswith("src/")]:
            deps.remove(file)
        if not deps:
            del stage["deps"]
        digest = CommentedSeq([f"stages.{name}"])
        digest.fa.set_flow_style()
        stage["params"].insert(0, {FILE: digest})
    made = HEADER + _text(content)
    if "src/" in made:
        raise PerennialError("dvc.yaml names files of src/ outside of `deps`; a project has none")
    return made


def with_model(text: str, name: str) -> str:
    """The dvc.yaml with another name of its one model, which `record.artifact` has, too."""
    content = _yaml().load(text)
    ((_, model),) = content["artifacts"].items()
    content["artifacts"] = {name: model}
    return _text(content)


def with_prefix(text: str, prefix: str) -> str:
    """The dvc.yaml of a pipeline in a folder of its own, which calls the project's top folder `prefix`."""
    content = _yaml().load(text.replace(f"of which {FILE} has", f"of which {prefix}{FILE} has"))
    for stage in content["stages"].values():
        for kind in ("deps", "params"):
            for number, each in enumerate(stage.get(kind, ())):
                name = next(iter(each)) if isinstance(each, Mapping) else each
                if name.startswith(SHARED):
                    stage[kind][number] = {f"{prefix}{name}": each[name]} if each != name else prefix + name
    return _text(content)


def _yaml() -> YAML:
    yaml = YAML()
    yaml.width, yaml.preserve_quotes = WIDTH, True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _text(content: Any) -> str:
    stream = io.StringIO()
    _yaml().dump(content, stream)
    return re.sub(r" +$", "", stream.getvalue(), flags=re.MULTILINE)  # it leaves blanks where it wraps
