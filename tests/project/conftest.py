"""The files of a project, which take a second to make, made once."""

import pytest

from perennial.project.new import new, template
from perennial.project.upgrade import upgrade


@pytest.fixture(scope="session")
def project_files() -> dict[str, bytes]:
    return template.template()


@pytest.fixture
def template_once(project_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (new, upgrade):
        monkeypatch.setattr(module, "template", lambda: dict(project_files))
