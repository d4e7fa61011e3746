"""Which commits keep their data, whatever their dates."""

import random
import subprocess
import time

import pytest
from support.git import git

from perennial.base.project.git import bare
from perennial.release.garbage.unneeded_objects import needed_commits

DAY_S = 86400


def write_history(folder, count, seed):
    """A repository of commits with shuffled dates and merges on branches, some of which were deleted.

    Returns the parents and the two dates of each commit, by its mark.
    """
    pick, now = random.Random(seed), int(time.time())
    known, lines = {}, ["reset refs/heads/main\n"]
    heads = {}
    for mark in range(1, count + 1):
        branch = f"refs/heads/{pick.choice(['main', 'main', 'main', 'a', 'b'])}"
        parents = [heads[branch]] if branch in heads else [pick.randrange(1, mark)] if mark > 1 else []
        if mark > 5 and pick.random() < 0.1:
            parents.append(pick.randrange(1, mark))
        parents = list(dict.fromkeys(parents))
        dates = [now - int(pick.choice([1, 3, 20, 90, 400]) * DAY_S * pick.uniform(0.5, 1.5)) for _ in range(2)]
        if pick.random() < 0.03:
            dates[0] = now + DAY_S * 30  # a clock that is ahead
        known[mark] = parents, dates
        heads[branch] = mark
        first, *others = [*parents, None][: max(1, len(parents))]
        lines += [
            f"commit {branch}\nmark :{mark}\nauthor A <a@b> {dates[0]} +0000\n",
            f"committer A <a@b> {dates[1]} +0000\ndata 1\n{mark % 10}\n",
            *([f"from :{first}\n"] if first else []),
            *(f"merge :{each}\n" for each in others),
            f"M 644 inline file\ndata {len(str(mark))}\n{mark}\n",
        ]
    git("init", "-q", "--bare", str(folder))
    command = ["git", "fast-import", "--quiet", f"--export-marks={folder / 'marks'}"]
    subprocess.run(command, cwd=folder, input="".join(lines), text=True, check=True)
    names = dict(line.split() for line in (folder / "marks").read_text().splitlines())
    return known, {int(mark[1:]): name for mark, name in names.items()}


@pytest.mark.parametrize("seed", range(2))
def test_recent_commits_of_a_history_with_shuffled_dates_are_those_of_a_brute_force_list(tmp_path, seed):
    known, names = write_history(tmp_path / "made", 200, seed)
    now = time.time()
    cutoff = now - 7 * DAY_S
    tips = {names[mark] for mark in known if not any(mark in parents for parents, _ in known.values())}
    tips |= set(git("for-each-ref", "--format=%(objectname)", folder=tmp_path / "made").split())

    def all_before(mark):
        found, left = set(), [mark]
        while left:
            each = left.pop()
            if each not in found:
                found.add(each)
                left += known[each][0]
        return found

    reachable = set().union(*(all_before(mark) for mark, name in names.items() if name in tips))
    recent = {
        names[mark]
        for mark in reachable
        if max(known[mark][1]) >= cutoff
        or any(cutoff <= max(known[each][1]) <= now for each in all_before(mark))
    }
    found = needed_commits(bare(tmp_path / "made"), cutoff)
    assert (set(found), len(found)) == (recent | tips, len(recent | tips))


def test_data_of_stashes_and_of_what_was_reset_today_stay(world):
    world.commit("first")
    stashed = []
    for name in ("one", "two"):
        stashed.append(world.make(name))
        git("stash", "-q")
    reset = world.make("reset")
    git("commit", "-qam", "reset", date=f"@{int(time.time())} +0000")
    git("reset", "-q", "--hard", "HEAD~1")
    git("update-ref", "-d", "ORIG_HEAD")
    lost = world.make("lost")
    world.make("first")
    world.gc(yes=True)
    held = world.held(world.cache)
    assert (stashed[0] | stashed[1] | reset <= held, lost & held) == (True, set())


def test_a_shallow_clone_removes_no_object(world, tmp_path, monkeypatch):
    made = world.commit("first")
    world.commit("second")
    git("push", "-q", "origin", "main")
    shallow = tmp_path / "shallow"
    git("clone", "-q", "--depth", "1", f"file://{tmp_path / 'remote'}", str(shallow))
    (shallow / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {world.cache}\n")
    monkeypatch.chdir(shallow)
    before = world.held(world.cache)
    rows = world.gc(yes=True, days=0)
    assert (made <= before, world.held(world.cache)) == (True, before)
    assert "git fetch --unshallow" in rows["cache"].kept


def test_a_tag_of_a_tag_keeps_its_data(world):
    tagged = world.commit("first")
    git("tag", "-am", "a tag", "one")
    git("tag", "-am", "a tag of a tag", "two", "one")
    git("tag", "-d", "one")
    git("checkout", "-q", "--orphan", "other")
    world.commit("second")
    git("branch", "-D", "main")
    world.gc(yes=True)
    assert tagged <= world.held(world.cache)


def test_a_commit_whose_date_cannot_be_read_keeps_its_data(world):
    world.commit("first")
    made = world.make("without a date")
    git("add", "dvc.lock")
    text = f"tree {git('write-tree')}\nparent {git('rev-parse', 'HEAD')}\n"
    text += "author A <a@b> not-a-date\ncommitter A <a@b> not-a-date\n\nmessage\n"
    command = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    name = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout.strip()
    git("update-ref", "refs/heads/main", name)
    git("reset", "-q", "--hard")
    world.commit("last")
    world.gc(yes=True)
    assert made <= world.held(world.cache)
