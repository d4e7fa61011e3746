"""Calls of the git program: objects, references, fetch, push; without prompts, hooks, secrets in messages.

Hooks are off in every call, in a run's checkout and in a person's clone: what is recorded is what was scored.
Commits and tags are made as objects that no reference names yet, so that one atomic push, or one transaction in
this repository, makes all of them visible at once. A run that is killed earlier leaves nothing behind.
"""

import logging
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perennial.base import files, limits, retries
from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.files import GIT_VARIABLES
from perennial.base.processes import programs

NOBODY = ("perennial", "perennial@localhost")  # name and e-mail if neither git nor params.yaml has one
LAST_DATE = 4102444799  # 2099-12-31 23:59:59 UTC; git refuses later dates
LINES = 3  # of git's message, and before it those of ssh or of the server
PROMISED = "promisor remote"  # in git's message if a partial clone cannot fetch an object
PEELED = {"commit", "tag"}  # what references name, or what annotated tags are of
CHECKOUT = "checkout/"  # of the local branches of runs' checkouts; several cannot check out `main` at once
# `-c`: a hook, or a program that watches files, could change or delay what is recorded.
COMMAND = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
# Of new repositories, whatever the user's default: the mirror is of others, and DVC reads no other formats.
FORMATS = {"GIT_DEFAULT_HASH": "sha1", "GIT_DEFAULT_REF_FORMAT": "files"}
LIMITS_S = {
    **dict.fromkeys(("clone", "fetch", "submodule"), limits.TRANSFER_S),
    "push": limits.PUSH_S,
    "worktree": limits.CHECKOUT_S,
}
REMOTE = {"clone", "fetch", "ls-remote", "push", "submodule"}  # commands that talk to a server
ADVICE = ("hint:", "warning:", "Please make sure you have the correct access", "and the repository exists.")
ROLES = ("AUTHOR", "COMMITTER")
IGNORED_FILE = ".gitignore"
IGNORE_ALL = b"# Copies of images, which may show people: not for git.\n*\n"
log = logging.getLogger(__name__)


class GitError(PerennialError):
    """Git refused or failed."""


class GitTimedOut(GitError):
    """Git did not end in time, perhaps because a server, ssh or a credential helper does not answer."""


@dataclass(frozen=True)
class Repository:
    """The git repository that holds a folder. Paths and pathspecs are relative to that folder."""

    folder: Path
    identity: Mapping[str, str] = field(default_factory=dict)  # and other variables of the environment
    lock: int | None = None  # descriptor of a lock that is held until git is gone, if this process is killed
    answer_s: float = limits.ANSWER_S  # for the list of a remote's references

    def run(self, *arguments: str, stdin: str | None = None, **variables: str) -> str:
        """Run a git command and return its stripped output."""
        done = self._git(arguments, {**self.identity, **variables}, stdin)
        if done.code:
            raise GitError(f"git {arguments[0]} failed: {message(done)}")
        return done.output.strip()

    def ask(self, *arguments: str) -> str | None:
        """Run a git command and return its output; None if it fails."""
        done = self._git(arguments, self.identity)
        return None if done.code else done.output.strip()

    def commit_of(self, revision: str) -> str | None:
        """Resolve a revision to a commit; None if it does not exist."""
        return self.ask("rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}")

    def ends(self, *patterns: str) -> list[str]:
        """The commits of all references, or of those below these patterns."""
        form = "%(objecttype) %(objectname) %(*objecttype) %(*objectname)"
        rows = map(str.split, self.run("for-each-ref", f"--format={form}", *patterns).splitlines())
        # A tag of a tag is followed to its commit by `commit_of`, in older versions of git only by that.
        found = (self.commit_of(row[-1]) if row[-2] == "tag" else row[-1] for row in rows if row[-2] in PEELED)
        return list(filter(None, found))

    def branch(self) -> str | None:
        """The checked-out branch; None where HEAD is detached."""
        head = self.ask("symbolic-ref", "--quiet", "HEAD")  # shortened, it is `heads/main` beside a tag `main`
        return head and head.removeprefix("refs/heads/")

    def upstream(self, remote: str) -> str | None:
        """The branch of a remote that the checked-out branch follows; None if it follows none there."""
        branch = self.branch()
        if branch is None or self.ask("config", f"branch.{branch}.remote") != remote:
            return None
        followed = self.ask("config", f"branch.{branch}.merge")
        return followed.removeprefix("refs/heads/") if followed else None

    def is_shallow(self) -> bool:
        """Whether this clone lacks older commits."""
        return self.ask("rev-parse", "--is-shallow-repository") == "true"

    def is_incomplete(self) -> bool:
        """Whether this clone is shallow, or a partial one that has not fetched all objects yet."""
        if self.is_shallow() or not self.ask("config", "--get-regexp", r"^remote\..*\.promisor$"):
            return self.is_shallow()
        return "\n?" in f"\n{self.run('rev-list', '--objects', '--all', '--missing=print')}"

    def read(self, revision: str, file: Path) -> str | None:
        """Read the text of a tracked file of the project; None if the revision lacks it."""
        done = self.call("show", f"{revision}:./{file.as_posix()}")
        if done.code and PROMISED in done.errors:
            raise GitError(f"this partial clone lacks {file} of {revision}: {message(done)}")
        return None if done.code else done.output.strip()

    def blob(self, name: str, most: int | None = None) -> bytes | None:
        """Read a git object, or its first bytes, by its name or as `REVISION:./PATH`; None if there is none."""
        done = self._git(("cat-file", "blob", name), self.identity, most=most)
        return None if done.code else done.stdout[:most]

    def blobs(self, file: Path, commits: Iterable[str]) -> dict[str, str]:
        """The object name of a file in each of these commits that has it, in their order."""
        names = list(dict.fromkeys(commits))
        asked = "".join(f"{name}:./{file.as_posix()}\n" for name in names)
        rows = self.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked).splitlines()
        # A row of a commit without the file is `<what was asked> missing`.
        found = zip(names, (row.split(" ") for row in rows), strict=True)
        return {name: row[1] for name, row in found if row[0] == "blob" and len(row) == 2}

    def tree(self, revision: str) -> dict[str, tuple[str, str]]:
        """The type (blob or tree) and object name at every path of a revision, from the repository's top."""
        listed = self.run("ls-tree", "-r", "-t", "-z", "--full-tree", revision)
        # Rows such as: `100644 blob 0123abcd\tfolder/file`
        rows = (row.partition("\t") for row in listed.split("\0") if row)
        return {path: (about.split()[1], about.split()[2]) for about, _, path in rows}

    def is_ancestor(self, one: str, other: str) -> bool:
        """Whether a commit is another's ancestor, or the same."""
        return self.ask("merge-base", "--is-ancestor", one, other) is not None

    def changed(self) -> tuple[list[str], list[str]]:
        """List tracked files that differ from HEAD, and files that are neither tracked nor ignored."""
        tracked = self.run("diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD")
        others = self.run("ls-files", "--others", "--exclude-standard", "-z")
        return _names(tracked), _names(others)

    def differing(self, one: str, other: str) -> list[str]:
        """List the files of the whole repository that differ between two commits, relative to its root."""
        return _names(self.run("diff-tree", "-r", "--name-only", "--no-renames", "-z", one, other))

    def tree_with(self, base: str, files: Sequence[Path]) -> str:
        """Write the tree of a commit with these files as they are now; keeps the index."""
        there = [str(file) for file in files if (self.folder / file).is_file()]
        gone = [str(file) for file in files if str(file) not in there]
        # Unlike `git add`, it takes ignored files, and those that a sparse checkout leaves out.
        return self._tree(base, ("--force-remove", "--", *gone), ("--add", "--", *there))

    def tree_with_text(self, base: str, file: Path, text: str) -> str:
        """Write the tree of a commit with another text of a file; keeps the index and the working tree."""
        blob = self.run("hash-object", "-w", "--stdin", stdin=text)
        path = self.run("rev-parse", "--show-prefix") + file.as_posix()
        return self._tree(base, ("--add", "--cacheinfo", f"100644,{blob},{path}"))

    def _tree(self, base: str, *updates: Sequence[str]) -> str:
        """Write the tree of a commit after updates of an index that is used for nothing else."""
        with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            self.run("read-tree", base, **index)
            for update in updates:
                self.run("update-index", *update, **index)
            return self.run("write-tree", **index)

    def signs(self, *options: str) -> bool:
        """Whether git is configured to sign, by one of these options."""
        return any(self.ask("config", "--type=bool", name) == "true" for name in options)

    def commit(self, tree: str, parent: str | None, message: str) -> str:
        """Create a commit object without a reference, signed where git is configured to; returns its name."""
        parents = ("-p", parent) if parent else ()
        sign = ("-S",) if self.signs("commit.gpgSign") else ()
        return self.run("commit-tree", *sign, tree, *parents, "-F", "-", stdin=message)

    def tag(self, name: str, commit: str, message: str, date: int) -> str:
        """Create an annotated tag object without a reference, perhaps signed; `date` in s since 1970."""
        if date > LAST_DATE:
            raise GitError(
                f"the tag {name} would be of a date after 2099, which git cannot store, because a tag is dated "
                "after those before it; `git tag --sort=-taggerdate` shows the wrong date"
            )
        if self.signs("tag.gpgSign", "tag.forceSignAnnotated"):
            return self._signed_tag(name, commit, message, date)
        tagger = self.run("var", "GIT_COMMITTER_IDENT", GIT_COMMITTER_DATE=f"@{date} +0000")
        text = f"object {commit}\ntype commit\ntag {name}\ntagger {tagger}\n\n{message.rstrip()}\n"
        return self.run("mktag", stdin=text)

    def _signed_tag(self, name: str, commit: str, message: str, date: int) -> str:
        """Create a signed tag object; `git tag` names it at once, so it does that in an empty repository."""
        places = self.run("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
        where, common = map(Path, places.splitlines())
        with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
            form = f"--object-format={self.run('rev-parse', '--show-object-format')}"
            self.run("init", "--quiet", "--bare", form, folder)
            empty = {"GIT_DIR": folder, "GIT_OBJECT_DIRECTORY": str(common / "objects")}
            there = replace(self, folder=Path(folder), identity={**self.identity, **empty})
            for config in (common / "config", where / "config.worktree"):
                there.run("config", "--add", "include.path", str(config))
            date_of = {"GIT_COMMITTER_DATE": f"@{date} +0000"}
            there.run("tag", "--sign", "--cleanup=verbatim", "-F", "-", name, commit, stdin=message, **date_of)
            return there.run("rev-parse", f"refs/tags/{name}")

    def update(self, references: Mapping[str, str | None]) -> None:
        """Set references of this repository in one transaction; None deletes one."""
        lines = [f"update {name} {to}\n" if to else f"delete {name}\n" for name, to in references.items()]
        if lines:
            self.run("update-ref", "--stdin", stdin="".join(lines))

    def has_remote(self, remote: str) -> bool:
        """Whether a remote of this name is configured."""
        return self.ask("remote", "get-url", remote) is not None

    def fetch(self, remote: str, references: Iterable[str], *, whole: bool = False) -> None:
        """Fetch to these references alone, and remove stale ones; `whole`: also what a shallow clone lacks."""
        self.run("ls-remote", "--quiet", remote, "HEAD")
        deepen = ("--unshallow",) if whole and self.is_shallow() else ()
        for pause in (*retries.GIT_RACE_S, None):
            try:
                self.run("fetch", "--quiet", "--no-tags", "--refmap=", "--prune", *deepen, remote, *references)
            except GitError as error:
                if pause is None or "cannot lock ref" not in str(error):
                    raise
                time.sleep(pause)
            else:
                return

    def call(self, *arguments: str) -> programs.Finished:
        """Run a git command, however it ends."""
        return self._git(arguments, self.identity)

    def _git(
        self,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        stdin: str | None = None,
        most: int | None = None,
    ) -> programs.Finished:
        """Run git; it gets SIGTERM at its limit, or if this process is interrupted, and removes its locks."""
        name = arguments[0]
        limit_s = self.answer_s if name == "ls-remote" else LIMITS_S.get(name, limits.LOCAL_S)
        environment = {**_environment(), **variables}
        if name in REMOTE:
            environment |= self._ssh(environment)
        try:
            return programs.run(
                [*COMMAND, *arguments], limit_s=limit_s, cwd=self.folder, env=environment,
                stdin=stdin or b"", most=most, lock=self.lock, guarded=name in REMOTE,
            )  # fmt: skip
        except programs.TimedOut as error:
            remedy = f"; look at the network, at ssh and at git's credential helper, or set {limits.FACTOR}=2"
            said = f": {error.said}" if error.said else ""
            what = f"git {name} did not end within {error.limit_s:g} s and was stopped{said}"
            raise GitTimedOut(f"{what}{remedy if name in REMOTE else ''}") from error

    def _ssh(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The ssh command with an end to each wait and no question; a user's own program is left as it is."""
        command = environment.get("GIT_SSH_COMMAND") or self.ask("config", "core.sshCommand")
        if command is None and environment.get("GIT_SSH"):
            return {}
        command = "ssh" if command is None else command
        try:
            program = shlex.split(command)[0]
        except (ValueError, IndexError):
            return {}
        if Path(program).name != "ssh":
            return {}
        # The first value of an option counts, so the user's stay.
        options = [f"ConnectTimeout={limits.CONNECT_S}", "ServerAliveInterval=15", "ServerAliveCountMax=4"]
        if environment.get("SSH_ASKPASS_REQUIRE") != "force":
            options.append("BatchMode=yes")
        return {"GIT_SSH_COMMAND": " ".join((command, *(f"-o {option}" for option in options)))}


def bare(folder: Path, lock: int | None = None) -> Repository:
    """A bare repository, named as git asks for with `safe.bareRepository=explicit`."""
    return Repository(folder, {"GIT_DIR": str(folder)}, lock)


def require_commit(found: Repository) -> None:
    """Check that a repository has a commit."""
    if found.commit_of("HEAD") is None:
        raise ConfigError("this git repository has no commit yet; commit the project first")


def repository(folder: Path, name: str | None = None, email: str | None = None) -> Repository:
    """The repository that holds a folder; its author is as given, else git's own, else `perennial`."""
    given = {**_identity("NAME", name), **_identity("EMAIL", email)}
    found = Repository(folder, given)
    try:
        found.run("rev-parse", "--git-dir")
    except GitError as error:
        if "not a git repository" in str(error):
            raise ConfigError(f"{folder.resolve()} is in no git repository; `git init` makes one") from error
        raise ConfigError(f"the git repository of {folder.resolve()} cannot be read: {error}") from error
    require_commit(found)
    return identified(found)


def identified(found: Repository) -> Repository:
    """The same repository with an author, `perennial`, for what neither it nor git's settings name."""
    if all(found.ask("-c", "user.useConfigOnly=true", "var", f"GIT_{who}_IDENT") for who in ROLES):
        return found
    own = {**_identity("NAME", NOBODY[0]), **_identity("EMAIL", NOBODY[1])}
    set_here = {key: os.environ[key] for key in own if os.environ.get(key)}
    return replace(found, identity={**own, **set_here, **found.identity})


def _identity(part: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {f"GIT_{role}_{part}": value for role in ROLES}


def after(last: int | None) -> int:
    """The date of the next tag in seconds since 1970: now, but after the last tag."""
    return max(int(time.time()), (last or 0) + 1)


def _environment() -> dict[str, str]:
    """This process's environment without variables that select another repository or change git's output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_TRACE")}
    for name in (*GIT_VARIABLES, "GIT_CURL_VERBOSE"):
        kept.pop(name, None)
    stalled = {"GIT_HTTP_LOW_SPEED_LIMIT": "1", "GIT_HTTP_LOW_SPEED_TIME": str(limits.STALLED_S)}
    return {**stalled, **kept, **FORMATS, "LC_ALL": "C"}


def _names(listed: str) -> list[str]:
    return [name for name in listed.split("\0") if name]


def message(done: programs.Finished) -> str:
    """The lines from git's first error on, and a few before it, which are ssh's or the server's reason."""
    lines = [line for line in done.errors.splitlines() if line.strip() and not line.startswith(ADVICE)]
    first = next((n for n, line in enumerate(lines) if line.startswith(("fatal:", "error:"))), len(lines))
    return redacted(" ".join(lines[max(0, first - LINES) :][: 2 * LINES])) or f"exit code {done.code}"


def keep_out_of_git(folder: Path, *, ours: bool) -> None:
    """Let git ignore all that is in a folder; `ours`: no other program's files are in it."""
    if ours and not (folder / IGNORED_FILE).exists():
        files.write_bytes(folder / IGNORED_FILE, IGNORE_ALL)
    tree = (folder.absolute(), *folder.absolute().parents)
    if not any((each / ".git").exists() for each in tree) or shutil.which("git") is None:
        return
    repository = Repository(folder)
    if repository.call("check-ignore", "--quiet", "--no-index", "image").code == 1:  # it is not
        raise ConfigError(
            f"git does not ignore {folder}, so `git add` would publish the images in it; nothing was written; "
            f"name an empty folder, or add this one to a {IGNORED_FILE}"
        )
    if repository.ask("ls-files", "--error-unmatch", "--", "."):
        log.warning("git tracks files in %s; `git rm -r --cached %s` ends that and keeps them", folder, folder)
