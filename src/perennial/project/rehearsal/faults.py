"""Faults that need no server: how each is injected into a trial, and which guarantees are checked after it."""

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perennial.base.errors import DataError, Interrupted, PerennialError
from perennial.base.project.stages import STAGES
from perennial.data.tfrecord import framing
from perennial.project.rehearsal import marked_programs
from perennial.project.rehearsal.fault_trial import (
    DURABLE,
    ERRORS_REPORTED,
    SAME_RESULT,
    Check,
    Trial,
    ended_well,
)
from perennial.project.rehearsal.marked_programs import TooLate, chance
from perennial.project.rehearsal.services import FaultyS3, ImageServer, s3_missing

FAILED = range(1, 256)  # exit codes
STOP_S = 20.0  # from SIGTERM to SIGKILL, as a flow does it
ENDED_ANYWAY_S = 1.0  # a stage that succeeds this soon after a signal had finished its work
CHECKPOINTS = 2  # before one is damaged
PREFECT_S = 60.0  # for a flow to report its end, and for its server to stop
DOWN_S = 4.0  # of a short loss of the network, at most
S3_SHARES = (0.05, 0.2, 0.5)
S3_CONFIG = """\
[core]
    remote = s3
['remote "s3"']
    url = s3://{bucket}/dvc
    endpointurl = {address}
    access_key_id = rehearsal
    secret_access_key = rehearsal
    verify = true
"""


@dataclass(frozen=True)
class Services:
    """The services that all trials share."""

    source: ImageServer
    s3: FaultyS3 | None


def killed_stage(trial: Trial, _: Services) -> Iterator[Check]:
    """SIGKILL the process of a stage or a publication, started by `dvc repro` or by hand."""
    stage = trial.stage(*STAGES, "publish")
    trial.begin(None if stage == "publish" else stage)
    running = trial.start("perennial", "publish") if stage == "publish" else trial.start("dvc", "repro", stage)
    process = marked_programs.wait_for(lambda: trial.process_of(stage), running)
    trial.pause(process, stage)
    trial.signal(process, signal.SIGKILL, stage)
    ended = running.wait()
    if ended.code == 0:
        raise TooLate
    yield trial.left()
    yield from trial.published()
    if stage == "publish":
        again = trial.run("perennial", "publish")
        yield ended_well(SAME_RESULT, again)
        yield from trial.published()
        return
    yield trial.reported(ended, FAILED, stage)
    yield trial.completes(stage)


def killed_flow(trial: Trial, _: Services) -> Iterator[Check]:
    """SIGKILL `python -m flows.retrain` during any stage."""
    stage = trial.stage("convert", "train", "evaluate", "export")
    trial.begin(stage)
    running = trial.start("flows.retrain")
    process = marked_programs.wait_for(lambda: trial.process_of(stage), running)
    trial.pause(process, stage)
    trial.signal(running.pid, signal.SIGKILL, "the flow")
    running.wait()
    yield trial.left()
    yield from trial.published()
    again = trial.run("flows.retrain")
    yield trial.equal(again)
    yield from trial.published()
    yield trial.left()


def sigterm(trial: Trial, _: Services) -> Iterator[Check]:
    """SIGTERM a stage or the flow: it saves its work, reports it, and exits with 75."""
    stage = trial.stage("convert", "validate", "train", "evaluate", "export")
    trial.begin(stage)
    by_flow = trial.rng.random() < 0.25
    running = trial.start("flows.retrain") if by_flow else trial.start("perennial", stage)
    process = marked_programs.wait_for(lambda: trial.process_of(stage), running)

    def handled() -> int | None:
        return process if marked_programs.catches(process, signal.SIGTERM) else None

    marked_programs.wait_for(handled, running)
    trial.pause(process, stage)
    trial.signal(running.pid, signal.SIGTERM, "the flow" if by_flow else stage)
    sent = time.monotonic()
    try:
        ended = running.wait(STOP_S + (PREFECT_S if by_flow else 0))
    except PerennialError as error:
        yield Check(ERRORS_REPORTED, f"SIGTERM did not end it: {error}")
    else:
        took = time.monotonic() - sent
        whole = all((trial.checkout / out).exists() for out in trial.project.outs(stage))
        # A flow stops after the stage, which had ended.
        if whole and (by_flow or ended.code == -signal.SIGTERM or (ended.code == 0 and took < ENDED_ANYWAY_S)):
            raise TooLate
        # Of the stage, also where the flow prints it: a stage that had to be killed prints nothing.
        check = trial.reported(ended, {Interrupted.exit_code}, "SIGTERM ended")
        yield Check(ERRORS_REPORTED, check.broken and f"{took:.1f} s after SIGTERM: {check.broken}")
    yield trial.left()
    yield trial.completes(stage)


def full_disk(trial: Trial, _: Services) -> Iterator[Check]:
    """Limit the size of files, so that writes fail midway with EFBIG, like ENOSPC on a full disk."""
    stage = trial.stage(*(each for each in STAGES if each != "initialize"))
    sizes = [
        file.stat().st_size
        for out in trial.project.outs(stage)
        for file in _files(trial.project.reference / out)
    ]
    trial.begin(stage)
    limit = int(trial.rng.random() ** 2 * max(sizes))
    running = trial.start("perennial", stage)
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    trial.note(f"{stage} with files of at most {limit} bytes")
    ended = running.wait()
    if ended.code == 0:
        raise TooLate
    yield trial.reported(ended, {PerennialError.exit_code}, "file too large")
    yield trial.left()
    yield trial.completes(stage)


def lost_network(trial: Trial, services: Services) -> Iterator[Check]:
    """Drop the source's server during the download, for a moment or until the stage gives up."""
    source, size = services.source, _source_bytes(services.source)
    trial.begin("download")
    for_good = trial.rng.random() < 0.5
    source.cut_after = trial.rng.randrange(size)
    trial.note(f"the network is lost after {source.cut_after} of {size} bytes{' for good' if for_good else ''}")
    try:
        running = trial.start("perennial", "download")
        while not running.ended and not source.lost.wait(marked_programs.POLL_S):
            pass
        if not for_good:
            time.sleep(trial.rng.uniform(0, DOWN_S))
            source.back()
        ended = running.wait()
    finally:
        source.back()
    if ended.code:
        yield trial.reported(ended, {PerennialError.exit_code}, source.address)
    elif for_good:
        yield Check(ERRORS_REPORTED, f"the download ended well without its source: {ended.last_lines()}")
    yield trial.left()
    yield trial.completes("download")


def clock_jumps(trial: Trial, _: Services) -> Iterator[Check]:
    """Let the clock jump by days, forwards or backwards, while a stage runs."""
    stage = trial.stage("convert", "train", "evaluate", "export")
    trial.begin(stage)
    jump = trial.rng.choice((-400, -1, 1, 400)) * trial.rng.uniform(0.1, 1)
    with marked_programs.own_clock(trial.folder) as (variables, turn):
        running = trial.start("dvc", "repro", stage, **variables)
        process = marked_programs.wait_for(lambda: trial.process_of(stage), running)
        trial.pause(process, stage)
        turn(jump)
        trial.note(f"the clock jumps by {jump:.1f} days")
        ended = running.wait()
    yield trial.equal(ended, stage)
    yield trial.left()
    yield trial.completes(stage)


def corrupted_checkpoint(trial: Trial, _: Services) -> Iterator[Check]:
    """Damage the newest checkpoint of a killed training: the next run reports it and uses an older one."""
    trial.begin("train")
    running = trial.start("dvc", "repro", "train")
    process = marked_programs.wait_for(lambda: trial.process_of("train"), running)
    wanted = trial.rng.randint(CHECKPOINTS, CHECKPOINTS + 2)
    marked_programs.wait_for(lambda: process if len(_checkpoints(trial)) >= wanted else None, running)
    trial.signal(process, signal.SIGKILL, f"train after {wanted} checkpoints")
    running.wait()
    yield trial.left()
    newest = _checkpoints(trial)[-1]
    file = trial.rng.choice(sorted(_files(newest)))
    trial.note(f"{damage(file, trial.rng)} {file.relative_to(trial.checkout)}")
    ended = trial.run("dvc", "repro", "train")
    yield trial.reported(ended, range(256), newest.name)
    yield trial.equal(ended, "train")


def corrupted_shard(trial: Trial, _: Services) -> Iterator[Check]:
    """Damage a shard of the records: no stage accepts it, and the next run rebuilds it."""
    stage, split = trial.rng.choice(
        (("validate", ""), ("train", "train"), ("train", "validation"), ("evaluate", "test"))
    )
    trial.begin(stage)
    records = trial.checkout / trial.project.config().paths.records
    shards = sorted(file for file in records.glob("*.tfrecord") if split in file.name)
    file = trial.rng.choice(shards)
    how = damage_shard(file, trial.rng) if trial.rng.random() < 0.5 else damage(file, trial.rng)
    trial.note(f"{how} {file.name} before {stage}")
    ended = trial.run("perennial", stage)
    yield trial.reported(ended, {DataError.exit_code}, file.name)
    yield trial.left()
    yield trial.completes(stage)


def damaged_remote(trial: Trial, _: Services) -> Iterator[Check]:
    """Damage an object of DVC's remote: no pull accepts it, and the audit reports and repairs it."""
    trial.begin()
    trial.commit()
    yield ended_well(SAME_RESULT, trial.run("dvc", "push", "--quiet"))
    objects = sorted(_files(trial.folder / "remote"))
    file = trial.rng.choice(objects)
    digest = f"{file.parent.name}{file.name}"
    trial.note(f"{damage(file, trial.rng)} the remote's object {digest}")
    cache = trial.checkout / ".dvc" / "cache"
    good = trial.folder / "cache"
    cache.rename(good)
    trial.project.remove_outs(trial.checkout)
    pulled = trial.run("dvc", "pull")
    yield trial.reported(pulled, FAILED, digest, "corrupt", "failed to (load|fetch|pull)", "missing")
    shutil.rmtree(cache, ignore_errors=True)
    good.rename(cache)
    audit = trial.run("perennial", "audit", "--deep", "--json")
    yield trial.reported(audit, {0, PerennialError.exit_code, DataError.exit_code}, digest.removesuffix(".dir"))
    trial.run("perennial", "audit", "--deep", "--repair")
    shutil.rmtree(cache)
    trial.project.remove_outs(trial.checkout)
    yield trial.equal(trial.run("dvc", "pull"))


def s3_errors(trial: Trial, services: Services) -> Iterator[Check]:
    """Fail a share of all requests to DVC's S3 remote: nothing wrong is kept, and the next try completes."""
    s3 = services.s3
    if s3 is None:
        raise TooLate
    trial.begin()
    bucket, share = trial.folder.name.lower(), trial.rng.choice(S3_SHARES)
    s3.make_bucket(bucket)
    (trial.checkout / ".dvc" / "config.local").write_text(
        S3_CONFIG.format(bucket=bucket, address=s3.address), encoding="utf-8"
    )
    with s3.failing(share, chance(trial.rng.random())):
        pushed = trial.run("dvc", "push")
    trial.note(f"{s3.failed} requests of a push failed, {share:.0%} of all")
    if pushed.code:
        yield trial.reported(pushed, FAILED, "fail", "error")
    yield ended_well(SAME_RESULT, trial.run("dvc", "push"))
    shutil.rmtree(trial.checkout / ".dvc" / "cache")
    trial.project.remove_outs(trial.checkout)
    with s3.failing(share, chance(trial.rng.random())):
        pulled = trial.run("dvc", "pull")
    trial.note(f"{s3.failed} requests of a pull failed")
    if pulled.code:
        yield trial.reported(pulled, FAILED, "fail", "error")
        pulled = trial.run("dvc", "pull")
    yield trial.equal(pulled)


def power_cut(trial: Trial, _: Services) -> Iterator[Check]:
    """Trace a stage with strace: each output and its folder are flushed to disk after the last write."""
    stage = trial.stage("download", "convert", "validate", "train", "evaluate", "export", "gate")
    trial.begin(stage)
    trace = trial.folder / "trace"
    ended = trial.start("perennial", stage, under=marked_programs.strace(trace)).wait()
    outs = [trial.checkout / out for out in trial.project.outs(stage)]
    missing = marked_programs.unsynced(trace, [file for out in outs for file in _files(out)], trial.checkout)
    trial.note(f"{stage} under strace")
    yield ended_well(SAME_RESULT, ended)
    names = ", ".join(str(path.relative_to(trial.checkout)) for path in missing[:3])
    yield Check(DURABLE, f"{len(missing)} files not flushed: {names}" if missing else "")
    yield trial.completes(stage)


@dataclass(frozen=True)
class Fault:
    """A kind of fault. `missing`: why it cannot be injected here, None if it can."""

    name: str
    inject: Callable[[Trial, Services], Iterator[Check]]
    missing: Callable[[], str | None] = lambda: None


FAULTS = (
    Fault("killed stage", killed_stage),
    Fault("killed flow", killed_flow),
    Fault("SIGTERM", sigterm),
    Fault("full disk", full_disk),
    Fault("lost network", lost_network),
    Fault("clock jumps", clock_jumps, marked_programs.no_clock),
    Fault("corrupted checkpoint", corrupted_checkpoint),
    Fault("corrupted shard", corrupted_shard),
    Fault("damaged remote object", damaged_remote),
    Fault("S3 errors", s3_errors, s3_missing),
    Fault("power cut", power_cut, marked_programs.no_trace),
)


def damage(file: Path, rng: random.Random) -> str:
    """Damage a file in a typical way (disk error, broken copy, mistake); returns which."""
    content = bytearray(file.read_bytes())
    kind = rng.choice(("a flipped bit in", "the end cut off", "zeros in", "an empty"))
    if kind == "a flipped bit in":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == "the end cut off":
        del content[rng.randrange(len(content)) :]
    elif kind == "zeros in":
        at = rng.randrange(len(content))
        content[at : at + 64] = bytes(b ^ 0xFF if not b else 0 for b in content[at : at + 64])
    else:
        content.clear()
    os.chmod(file, 0o644)  # noqa: PTH101 - DVC's objects are read-only
    file.write_bytes(content)
    return kind


def damage_shard(file: Path, rng: random.Random) -> str:
    """Remove or repeat a whole record, which a shard's checksums do not reveal; returns which of the two."""
    content = file.read_bytes()
    with file.open("rb") as stream:
        spans, _ = framing.scan(stream, len(content))
    start, size = (int(value) for value in spans[rng.randrange(len(spans))])
    end = start + size + framing.OVERHEAD
    gone = rng.random() < 0.5
    file.write_bytes(content[:start] + content[end:] if gone else content[:end] + content[start:])
    return "a record removed from" if gone else "a record repeated in"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]


def _checkpoints(trial: Trial) -> list[Path]:
    found = (trial.checkout / trial.project.config().paths.work / "train").glob("**/step-*")
    return sorted(each for each in found if each.is_dir())


def _source_bytes(source: ImageServer) -> int:
    return sum(file.stat().st_size for file in source.folder.iterdir())
