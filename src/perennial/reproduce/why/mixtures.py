"""Train mixtures: the inputs of one revision combined with some of another's, in a scratch checkout.

The checkout shares DVC's cache, including the run cache, with this project: equal inputs are not trained twice.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.base import documents
from perennial.base.config.paths import FIXED
from perennial.base.dvc import dvc_lock, dvc_program
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import DataError, PerennialError
from perennial.base.layout import Project
from perennial.base.project.git import Repository
from perennial.base.stage_state import environment
from perennial.model.evaluation import predictions
from perennial.reproduce.rebuild import rebuild_inputs
from perennial.reproduce.rebuild.rebuild_inputs import FETCHED
from perennial.reproduce.rebuild.stage_differences import PARAMS, differing_inputs
from perennial.reproduce.rebuild.workspace import DvcFailed, Workspace, workspace
from perennial.reproduce.why import chain
from perennial.reproduce.why.chain import State, Step, Untestable
from perennial.reproduce.why.differences import PIPELINE, Revision, Revisions
from perennial.reproduce.why.effect import Outcome, RecordedScores

log = logging.getLogger(__name__)
TRAIN, SEED = "train", "train.seed"


class Mixtures:
    """Computes the scores of states in one scratch checkout."""

    def __init__(self, opened: Revisions, work: Workspace) -> None:
        self._opened, self._work, self._git = opened, work, Repository(work.folder)
        self.trainings = 0

    def outcome(self, state: State) -> Outcome:
        """Train a state if no cache has it, and score it."""
        log.info("%s: looking for its score", state.name)
        try:
            self._lay_out(state)
            self._work = self._work.with_packages()
            commits = state.commit.commit, state.before.commit
            rebuild_inputs.bring(self._opened.repository, self._work, self._opened.history, *commits)
            recorded = self._recorded()
            fetching = [stage for stage in state.commit.needed if stage in FETCHED]
            self._freeze([stage for stage in fetching if self._fetched(state, stage, recorded[stage])])
            self.trainings += TRAIN in self._work.repro(state.commit.needed[-1], above=True)
            return self._read(state.name)
        except (PerennialError, OSError, YAMLError, ValueError, LookupError) as error:
            raise Untestable(f"{state.name} has no score: {str(error) or type(error).__name__}") from error

    def _lay_out(self, state: State) -> None:
        """Change the tracked files of the checkout to those of a state."""
        self._git.run("checkout", "--quiet", "--force", "--detach", state.commit.commit)
        self._git.run("clean", "-d", "--force", "--quiet")
        recorded = documents.parse_yaml(state.commit.lock_text)
        values: dict[str, Any] = {} if state.seed is None else {SEED: state.seed}
        for step in state.unmade:
            self._take_back(step)
            values |= {key: dvc_lock.value_at(state.before.values, key) for key in chain.parameters(step)}
            other = documents.parse_yaml(state.before.lock_text)
            for stage in chain.fetching(step):
                if stage in other["stages"]:
                    recorded["stages"][stage] = other["stages"][stage]
        if values:
            self._set(values)
        self._write(dvc_lock.FILE.name, recorded)

    def _set(self, values: Mapping[str, object]) -> None:
        """Set keys such as `train.seed` in the params.yaml, which may be for any version of perennial."""
        content = self._work.values()
        for key, value in values.items():
            section, _, last = key.rpartition(".")
            if not isinstance(part := dvc_lock.value_at(content, section), dict):
                raise DataError(f"{PARAMS} has no section {section}")
            part[last] = value
        self._write(PARAMS, content)

    def _write(self, name: str, content: object) -> None:
        with (self._work.folder / name).open("w", encoding="utf-8") as stream:
            YAML(typ="safe").dump(content, stream)

    def _take_back(self, step: Step) -> None:
        """Reset tracked paths to their content before a step."""
        for path in chain.paths(step):
            self._git.run("rm", "-r", "--quiet", "--force", "--ignore-unmatch", "--", path)
            if self._opened.history.digest(step.before.commit, path) is not None:
                self._git.run("checkout", step.before.commit, "--", path)
        own = Project.find().shared(environment.OWN).as_posix()
        if step.kind == "packages" and self._opened.history.digest(step.commit.commit, own) is not None:
            self._git.run("checkout", step.commit.commit, "--", own)  # it is the code, not a package

    def _freeze(self, stages: Sequence[str]) -> None:
        """Freeze stages, so that DVC accepts their outputs whatever code fetched them."""
        content = documents.parse_yaml((self._work.folder / PIPELINE).read_text(encoding="utf-8"))
        for stage in stages:
            content["stages"][stage]["frozen"] = True
        self._write(PIPELINE, content)

    def _recorded(self) -> dict[str, LockedStage]:
        return dvc_lock.parse(
            self._work.lock.read_text(encoding="utf-8"), f"the {dvc_lock.FILE} of the mixture"
        )

    def _fetched(self, state: State, stage: str, entry: LockedStage) -> bool:
        """Restore what a stage fetched; returns False if its inputs differ, so that it must run."""
        now = rebuild_inputs.current(entry, self._work.folder)
        made = {out: "" for each in self._recorded().values() for out in each.outs}
        for each in differing_inputs(stage, entry, now, made):
            is_own = each.kind == "data" and each.what in entry.deps and not self._is_tracked(state, each.what)
            if each.kind not in {"code", "packages"} and not is_own:
                return False
        if not rebuild_inputs.not_as_recorded(self._work, entry.outs):
            return True
        try:
            self._work.dvc("checkout", "--force", stage)
        except DvcFailed:
            rebuild_inputs.restore(self._work, stage, entry)
        return True

    def _is_tracked(self, state: State, path: str) -> bool:
        return any(self._opened.history.has_data(each.commit, path) for each in (state.commit, state.before))

    def _read(self, name: str) -> Outcome:
        file = self._work.folder / FIXED["predictions"]
        return Outcome(
            name=name,
            scores=documents.read_checked(
                self._work.folder / FIXED["metrics"], RecordedScores, "it is damaged"
            ),
            predictions=predictions.read(file) if file.exists() else None,
            records=dvc_lock.digest(self._recorded(), FIXED["records"]),
        )


@contextmanager
def mixtures(opened: Revisions, revision: Revision, *, keep: bool = False) -> Iterator[Mixtures]:
    """A scratch checkout for mixtures; removed at the end unless `keep`."""
    cache = dvc_program.cache_folder(dvc_program.configuration()).resolve()
    with workspace(opened.repository, revision.commit, keep=keep, cache=cache) as work:
        yield Mixtures(opened, work)
