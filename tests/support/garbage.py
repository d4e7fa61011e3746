"""A project whose objects of DVC a test makes itself, with a remote of git and a store."""

import json
import os
import shutil
import time
from pathlib import Path

from ruamel.yaml import YAML
from support.git import git

from perennial.base import config, files
from perennial.base.dvc import dvc_digests
from perennial.release.garbage import collect

ROOT = Path(__file__).parents[2]
OLD = time.time() - 100 * 86400


class World:
    """A project with a remote of git, one of DVC, and a home; outputs are stored as DVC does."""

    def __init__(self, base):
        self.base, self.home, self.store = base, base / "home", base / "store"
        self.project = base / "project"
        self.cache = self.project / ".dvc" / "cache"
        (self.project / ".dvc").mkdir(parents=True)
        (self.project / ".dvc" / "config").write_text(
            f"[core]\n    remote = store\n['remote \"store\"']\n    url = {self.store}\n"
        )
        (self.project / ".gitignore").write_text("/data\n/.work\n/runs\n/.dvc/cache\n/.dvc/config.local\n")
        shutil.copy(ROOT / "params.yaml", self.project)
        git("init", "-qb", "main", folder=self.project)
        git("add", ".", folder=self.project)
        git("commit", "-qm", "Start", folder=self.project, date=f"@{int(OLD)} +0000")
        git("clone", "-q", "--bare", ".", str(base / "remote"), folder=self.project)
        git("remote", "add", "origin", str(base / "remote"), folder=self.project)

    def make(self, name, *, folder=None, pushed=True, old=True):
        """Write an output of two files and its dvc.lock in a checkout; returns its objects."""
        folder = folder or self.project
        data = folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        for number in range(2):
            files.write_bytes(data / f"{number}.txt", f"{name} {number}\n".encode() * (number + 10))
        members = {each: dvc_digests.digest(file) for each, file in dvc_digests.files_of(data).items()}
        digest = dvc_digests.digest(data)
        listed = json.dumps([{"md5": md5, "relpath": each} for each, md5 in sorted(members.items())])
        content = {md5: (data / each).read_bytes() for each, md5 in members.items()} | {digest: listed.encode()}
        for base in (self.cache, self.store) if pushed else (self.cache,):
            for md5, text in content.items():
                file = base / "files" / "md5" / md5[:2] / md5[2:]
                files.write_bytes(file, text)
                if old:
                    os.utime(file, (OLD, OLD))
        lock = {"stages": {"make": {"outs": [{"path": "data", "hash": "md5", "md5": digest}]}}}
        with (folder / "dvc.lock").open("w") as stream:
            YAML().dump(lock, stream)
        return set(content)

    def commit(self, name, *, folder=None, **options):
        """The same, committed long ago."""
        made = self.make(name, folder=folder, **options)
        git("add", "dvc.lock", folder=folder or self.project)
        git("commit", "-qm", name, folder=folder or self.project, date=f"@{int(OLD)} +0000")
        return made

    def held(self, base):
        return {f"{file.parent.name}{file.name}" for file in (base / "files" / "md5").glob("*/*")}

    def bytes(self, *where):
        return sum(file.stat().st_size for base in where for file in base.rglob("*") if file.is_file())

    def gc(self, *, yes=False, days=7):
        rows = collect.collect(config.load(Path("params.yaml")), self.home, days=days, yes=yes)
        return {row.what: row for row in rows}
