"""Whether a model may become champion, by dvc.lock, the registry and the pin alone."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.git import git

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.dvc import dvc_lock
from perennial.base.errors import ConfigError, DataError, Failure, PerennialError
from perennial.base.project.pins import ChampionPin, PinnedTeacher, WeightsPin
from perennial.model.evaluation.results import CandidateRecord, Decision
from perennial.release.registry import current_champion
from perennial.release.registry.access import OpenRegistry
from perennial.release.registry.current_champion import is_champion, judge, rolled_back
from perennial.release.registry.push import Push
from perennial.release.registry.versions import Registry, Version

PASSED = Decision(promote=True, reasons=["good"], candidate=CandidateRecord(data="d", model="m"))


def lock(model: str, export: str) -> str:
    """A dvc.lock whose stages made these two."""
    outs = "".join(
        f"    - {{path: {path}, md5: {digest}}}\n"
        for path, digest in (("models/weights", model), ("models/export", export))
    )
    return f"stages:\n  train:\n    cmd: t\n    outs:\n{outs}"


def mirrored(model: str, export: str) -> str:
    """A dvc.lock whose scores are those of means over mirror images."""
    return lock(model, export) + "  evaluate: {cmd: e, params: {params.yaml: {export.mirror: true}}}\n"


LOCKS = {"one": lock("m1", "e1"), "two": lock("m2", "e2"), "three": lock("m3", "e3")}
ONE, TWO, THREE = (
    Version(name=f"v0.0.{number}", commit=commit, date=number, facts={})
    for number, commit in enumerate(LOCKS, 1)
)


def registry(*champions: Version) -> Registry:
    """A registry in which these became champion in this order."""
    return Registry(
        artifact="classifier", versions=(ONE, TWO, THREE), champions=champions, only_here=(), last_number=3,
        champion=champions[-1] if champions else None, last_version=(0, 0, 3), last_date=3,
    )  # fmt: skip


@pytest.fixture
def checked(load) -> Config:
    return load()


def opened(checkout: str, *champions: Version, pinned: Version | None = None, **server: str) -> OpenRegistry:
    """The registry of a checkout with this dvc.lock, whose model was compared with the pinned version."""
    Path("dvc.lock").write_text(checkout)
    ChampionPin(commit=pinned and pinned.commit, version=pinned and pinned.name).write()
    git = SimpleNamespace(read=lambda commit, file: LOCKS.get(commit))
    where = {"remote": None, "unreachable": None, **server}
    return OpenRegistry(repository=git, registry=registry(*champions), **where)  # type: ignore[arg-type]


NEW = lock("m9", "e9")


@pytest.mark.parametrize(
    ("checkout", "champions", "pinned", "verdict", "words"),
    [
        (NEW, (), None, "promote", ""),
        (NEW, (ONE,), ONE, "promote", ""),
        (NEW, (ONE, TWO), TWO, "promote", ""),
        (NEW, (), ONE, "compare again", "compared with v0.0.1, but the champion is none now"),
        (NEW, (ONE,), None, "compare again", "compared with no champion, but the champion is v0.0.1 now"),
        (NEW, (ONE, TWO), ONE, "compare again", "compared with v0.0.1, but the champion is v0.0.2 now"),
        (lock("m1", "e1"), (ONE,), None, "reject", "this is the model of the champion v0.0.1"),
        (lock("m1", "e9"), (ONE,), None, "promote", ""),
        (mirrored("m1", "e9"), (ONE,), ONE, "promote", ""),
        (mirrored("m1", "e9"), (ONE,), None, "compare again", "compared with no champion"),
        (mirrored("m2", "e9"), (ONE, TWO, ONE), ONE, "promote", ""),
        (lock("m9", "e1"), (ONE,), ONE, "promote", ""),
        (lock("m2", "e2"), (ONE, TWO, ONE), ONE, "reject", "the model of v0.0.2, which was rolled back"),
        (lock("m2", "e9"), (ONE, TWO, ONE), ONE, "reject", "`perennial rollback v0.0.2` makes it champion"),
        (lock("m2", "e2"), (ONE, TWO, ONE, TWO), ONE, "reject", "this is the model of the champion v0.0.2"),
        (lock("m2", "e2"), (TWO, THREE), THREE, "promote", ""),
        ("stages: {}\n", (ONE,), ONE, "promote", ""),
    ],
)  # fmt: skip
def test_a_model_is_judged_against_the_champion_that_it_was_compared_with(
    checkout, champions, pinned, verdict, words, checked
) -> None:
    found, why = judge(checked, opened(checkout, *champions, pinned=pinned), PASSED)
    assert found == verdict
    assert words in why
    assert bool(why) == (verdict != "promote")


ORIGIN = {"remote": "origin"}


def raising(error: Exception):
    def fail(*given: object, **named: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("known", "pinned", "server", "pins"),
    [
        ((NEW, ONE, TWO), ONE, None, TWO),
        ((NEW, ONE), ONE, None, ONE),
        ((NEW, ONE), None, ORIGIN, ONE),
        ((lock("m2", "e9"), ONE, TWO), ONE, None, ONE),  # the champion itself
        ((lock("m2", "e9"), ONE, TWO, ONE), None, None, None),  # it was rolled back
        ((mirrored("m2", "e9"), ONE, TWO), ONE, None, TWO),  # its scores are not the champion's
        ((NEW,), None, None, None),
        ((NEW,), ONE, None, ONE),  # the server was not asked
        ((NEW,), ONE, {}, ONE),
        ((NEW,), ONE, {**ORIGIN, "unreachable": "no network"}, ONE),
        ((NEW,), ONE, ORIGIN, None),
    ],
)
def test_the_champion_is_pinned_unless_the_model_is_its_own_or_nothing_is_known_of_it(
    known, pinned, server, pins, checked, monkeypatch
) -> None:
    asked, options = [], {} if server is None else {"fetch": True}
    found = opened(*known, pinned=pinned, **(ORIGIN if server is None else server))
    ask = lambda config, **options: asked.append((config, options)) or found  # noqa: E731
    monkeypatch.setattr(current_champion, "open_registry", ask)
    pin, changed = current_champion.pin(checked, **options)
    assert (pin, changed) == (ChampionPin.read(), pinned != pins)
    assert (pin.version, pin.commit) == (pins and pins.name, pins and pins.commit)
    assert asked == [(checked, {"fetch": server is not None})]


@pytest.mark.parametrize(
    ("named", "known", "expected"),
    [
        (None, (ONE,), None),
        ("champion", (), PinnedTeacher(path="champion")),
        ("champion", (ONE, TWO), PinnedTeacher(path="champion", version="v0.0.2", commit="two")),
        ("v0.0.1", (ONE, TWO), PinnedTeacher(path="v0.0.1", version="v0.0.1", commit="one")),
    ],
)
def test_the_teacher_is_the_champion_or_a_version(named, known, expected, load, monkeypatch) -> None:
    monkeypatch.setattr(current_champion, "open_registry", lambda config, **options: opened(NEW, *known))
    assert current_champion.teacher(load(**{"train.teacher": named})) == expected


@pytest.mark.parametrize("server", [{}, {**ORIGIN, "unreachable": "x"}, ORIGIN])
def test_a_teacher_stays_pinned_unless_the_remote_has_no_versions(server, load, monkeypatch) -> None:
    found, asked = opened(NEW, **server), []
    none = replace(found, registry=replace(found.registry, versions=()))
    monkeypatch.setattr(current_champion, "open_registry", lambda config, fetch: asked.append(fetch) or none)
    WeightsPin(teacher=(old := PinnedTeacher(path="champion", version="v0.0.1", commit="one"))).write()
    pinned = current_champion.teacher(load(**{"train.teacher": "champion"}), fetch=True)
    assert (pinned, asked[0]) == (PinnedTeacher(path="champion") if server == ORIGIN else old, True)


def test_a_teacher_that_is_no_version_is_refused(load, monkeypatch) -> None:
    monkeypatch.setattr(current_champion, "open_registry", lambda config, **options: opened(NEW, ONE))
    with pytest.raises(ConfigError, match=r"classifier has no version models/export; known: v0\.0\.3"):
        current_champion.teacher(load(**{"train.teacher": "models/export"}))


def counted(comparisons: int, passed: bool, *, model: str = "m", opponent: str = "v0.0.2") -> dict[str, object]:
    return {"opponent": opponent, "model": model, "passed": passed, "comparisons": comparisons, "promotions": 1}


@pytest.mark.parametrize(
    ("share", "tag", "records", "pinned"),
    [
        (None, None, [counted(5, True)], {}),
        (0.1, None, [], {"comparisons": 0, "promotions": 0}),
        (0.1, None, [counted(5, False), counted(4, True)], {"comparisons": 6, "promotions": 1}),
        (0.1, counted(7, True), [counted(5, False)], {"comparisons": 8, "promotions": 2}),
        (0.1, None, [counted(364, True)], {"comparisons": 365, "promotions": 0}),
        (0.1, None, [counted(6, False), counted(5, True, model="ours")], {"comparisons": 5, "promotions": 1}),
        (0.1, None, [counted(5, True, model="ours", opponent="v0.0.1")], {"comparisons": 6, "promotions": 2}),
        (0.1, None, [counted(7, False), counted(7, True, model="n")], {"comparisons": 9, "promotions": 2}),
        (0.1, None, [counted(364, True), counted(364, True, model="n")], {"comparisons": 366, "promotions": 1}),
        (0.1, {"comparisons": "many"}, [{"passed": True}], {"comparisons": 0, "promotions": 0}),
    ],
)
def test_the_state_of_the_budget_is_pinned_with_the_champion(
    share, tag, records, pinned, load, monkeypatch
) -> None:
    config = load(**{"gate.false_share": share})
    files.write_json(config.paths.training, {"weights_sha256": "ours"})
    for number, each in enumerate(records):
        decision = {"promote": each["passed"], "accuracy": 0.9, "compared": each}
        files.write_json(
            config.paths.runs / f"n{number}" / "run.json", {"run": f"n{number}", "decision": decision}
        )
    found = opened(NEW, ONE, replace(TWO, facts={"compared": tag}))
    found = replace(found, registry=replace(found.registry, versions=found.registry.champions))
    monkeypatch.setattr(current_champion, "open_registry", lambda config, **options: found)
    pin, _ = current_champion.pin(config)
    assert documents.read_json(ChampionPin.FILE) == {"commit": TWO.commit, "version": "v0.0.2", **pinned}
    assert current_champion.pin(config) == (pin, False)


def test_nights_without_a_comparison_do_not_set_the_budget_back(load, monkeypatch) -> None:
    config = load(**{"gate.false_share": 0.1})
    git("init", "-q")
    nights = [counted(5, False), *({"opponent": "v0.0.2", "model": "m", "passed": False} for _ in range(11))]
    for number, each in enumerate(nights):
        record = config.paths.runs / f"n{number}" / "run.json"
        files.write_json(record, {"run": f"n{number}", "decision": {"promote": False, "compared": each}})
        git("checkout", "-q", "--orphan", f"run/n{number}")
        git("add", "-f", str(record))
        git("commit", "-qm", "x", date=f"2026-11-29T02:{number:02}:00Z")
        record.unlink()
    monkeypatch.setattr(current_champion, "open_registry", lambda config, **options: opened(NEW, ONE, TWO))
    pin, _ = current_champion.pin(config)
    assert (pin.comparisons, pin.promotions) == (6, 1)


def test_the_champion_stays_pinned_where_the_registry_cannot_be_read(checked, monkeypatch) -> None:
    opened(NEW, pinned=ONE)
    monkeypatch.setattr(current_champion, "open_registry", raising(PerennialError("damaged")))
    assert current_champion.pin(checked) == (ChampionPin.read(), False)
    assert ChampionPin.read().version == "v0.0.1"


@pytest.mark.parametrize(
    ("stored", "remote", "error"),
    [
        (None, {}, None),
        ("there", {}, None),
        ("gone", {}, DataError),
        ("gone", {"core.remote": "x"}, PerennialError),
    ],
)
def test_a_champion_whose_predictions_cannot_be_fetched_is_said_before_the_training(
    stored, remote, error, checked, monkeypatch
) -> None:
    path = "metrics/predictions.npz"
    out = f"outs: [{{path: {path if stored else 'x'}, md5: p}}]"
    made = dvc_lock.parse(f"stages: {{evaluate: {{cmd: e, {out}}}}}", "dvc.lock")
    asked, found = [], opened(NEW, ONE, TWO)

    def copied(commit: str, path: str, to: Path) -> None:
        asked.append((commit, path, to.name, to.is_absolute() and to.parent.is_dir()))
        if stored == "gone":
            raise PerennialError("no such object")

    registries = {(id(checked), False): found}
    monkeypatch.setattr(
        current_champion, "open_registry", lambda config, *, fetch: registries[id(config), fetch]
    )
    monkeypatch.setattr(current_champion.dvc_program, "configuration", lambda: remote)
    monkeypatch.setattr(current_champion.revision, "recorded", {TWO.commit: made}.__getitem__)
    monkeypatch.setattr(current_champion.revision, "fetch_output", copied)
    refused = r"champion v0\.0\.2; nothing was trained"
    with pytest.raises(error, match=refused) if error else nullcontext() as said:
        assert current_champion.require_available(checked) == "v0.0.2"
    assert error is None or said.type is error
    assert asked == [(TWO.commit, path, "predictions", True)] * bool(stored)
    registries[id(checked), False] = opened(NEW)
    assert current_champion.require_available(checked) is None


def test_what_the_gate_rejects_is_rejected_for_its_reasons(checked: Config) -> None:
    wrong = PASSED.model_copy(update={"promote": False, "reasons": ["too slow", "too large"]})
    assert judge(checked, opened(NEW, ONE), wrong) == ("reject", "rejected: too slow; too large")


def test_a_champion_is_known_by_its_export(checked: Config) -> None:
    for checkout, expected in ((lock("m9", "e1"), True), (lock("m1", "e9"), False)):
        assert is_champion(checked, opened(checkout, ONE)) == expected
    assert not is_champion(checked, opened(NEW))
    assert not is_champion(checked, opened(lock("m1", "e1"), ONE, TWO))


def test_only_versions_above_the_champion_are_rolled_back(checked: Config) -> None:
    assert rolled_back(checked, opened(lock("m9", "e2"), ONE, TWO, ONE)) == TWO
    assert rolled_back(checked, opened(lock("m9", "e1"), ONE, TWO)) is None
    assert rolled_back(checked, opened(lock("m9", "e3"), ONE, THREE, TWO)) == THREE
    assert rolled_back(checked, opened(lock("m9", "e3"), ONE, THREE, TWO, THREE)) is None


def test_a_rollback_goes_to_the_highest_champion_below() -> None:
    assert (registry(ONE, TWO, THREE).previous(), registry(TWO, ONE, THREE).previous()) == (TWO, TWO)
    for none in ((), (ONE,), (TWO, ONE)):
        with pytest.raises(DataError, match="no earlier champion"):
            registry(*none).previous()


def test_a_half_push_is_a_run_s_version_above_all_champions() -> None:
    made = [replace(each, facts={"run": "night"}) for each in (ONE, TWO, THREE)]
    half = replace(registry(ONE, TWO), versions=(*made[:2], made[2]))
    assert half.unassigned == (made[2],)
    assert replace(half, versions=(*made[:2], THREE)).unassigned == ()  # a person's tag
    assert replace(half, versions=tuple(made), champions=()).unassigned == tuple(made)


@pytest.mark.parametrize(
    ("push", "kind", "said"),
    [
        (Push(failure="Authentication failed"), Failure.REFUSED, "Authentication failed; "),
        (Push(refused={"refs/heads/main": "rejected (declined)"}), Failure.REFUSED, ".*; change what "),
        (Push(failure="it timed out"), Failure.OUTSIDE, "it timed out; look at `perennial versions`"),
        (Push(refused={"refs/heads/main": "denied"}, lost=True), Failure.OUTSIDE,
         "another champion was assigned meanwhile .*denied.*; look at `perennial versions`"),
    ],
)  # fmt: skip
def test_only_what_a_person_must_mend_is_a_refusal_of_a_rollback(
    push, kind, said, checked, monkeypatch
) -> None:
    monkeypatch.setattr(current_champion, "push_references", lambda repository, remote, tags: push)
    with pytest.raises(PerennialError, match=rf"^nothing was changed: {said}.*, then run this again") as raised:
        current_champion._push(opened(NEW), "origin", {})
    assert (push.kind, raised.value.kind) == (kind, kind)
