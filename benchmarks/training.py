"""One training a process: `python -m benchmarks.training speed true` in a project that is validated.

It is the stage itself, with its log, curves, checks and checkpoints; nothing but the end is another.
"""

import contextlib
import importlib
import json
import logging
import re
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from perennial.base import config
from perennial.base.config import Config
from perennial.base.processes import process
from perennial.base.processes.tensorflow import import_with_tensorflow
from perennial.data.records import manifest
from perennial.model.training.progress import WARM_UP_STEPS

if TYPE_CHECKING:
    from perennial.model.training.input import Input
    from perennial.model.training.loop import Evaluator, Loop
    from perennial.model.training.training_history import Evaluation, TrainingState

SECONDS = 4.0  # of a measurement, after the first steps
PROFILED = range(20, 40)  # updates


class Enough(Exception):
    """All is measured."""


class ReadyLine(logging.Handler):
    """Keeps what the training says of the time before its first step."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Looks for it in every line."""
        if found := re.search("ready after (.+)", record.getMessage()):
            self.parts = found[1]


def speed(deterministic: str) -> None:
    """Prints how fast the training is, and where its time goes outside of the updates."""
    ready, begin = ReadyLine(), None
    first: dict[str, Any] = {}
    logging.basicConfig(level=logging.INFO, handlers=[ready])

    def after(run: "Loop", state: "TrainingState", called: float) -> None:
        nonlocal begin
        now = state.step, time.monotonic(), time.process_time()
        if not first:
            first.update(
                first_step_at=time.time(),
                first_update_s=now[1] - called,
                before_s=called - process.STARTED,
                parts=ready.parts,
            )
        if begin is None:
            begin = now if state.step >= WARM_UP_STEPS else None
        elif now[1] - begin[1] > SECONDS:
            _report(run, state, first, [end - start for start, end in zip(begin, now, strict=True)])

    chosen = config.load(Path("params.yaml"))
    train = chosen.train.model_copy(update={"deterministic": deterministic == "true"})
    _train(chosen.model_copy(update={"train": train}), after)


def _report(run: "Loop", state: "TrainingState", first: dict[str, Any], passed: list[float]) -> NoReturn:
    """Prints what was found, after a checkpoint that is timed too."""
    steps, seconds, used = passed
    updates_s = steps * run.pace.seconds / (run.pace.steps or 1)
    asked = time.monotonic()
    run.saver.save(state, writes=True)
    held_s = time.monotonic() - asked
    run.saver.checkpoints.wait()
    found = {
        **first,
        "seconds_per_step": seconds / steps,
        "processor_s_per_step": used / steps,
        "input_wait": run.pace.input_wait,
        "loop_share": 1 - updates_s / seconds,
        "checkpoint_holds_s": held_s,
        "checkpoint_s": time.monotonic() - asked,
        "weights": run.trainer.model.count_params(),
    }
    print(json.dumps(found))
    raise Enough


def head(steps: str) -> None:
    """Prints how long decoding and the loop take, and keeps the weights.

    `steps`: "features" of the frozen layers, or "whole".
    """
    chosen = config.load(Path("params.yaml"))
    stage = import_with_tensorflow("perennial.stages.train", chosen.paths.work)
    run_loop, decode = stage.Loop.run, stage.Input.__init__
    found: dict[str, float] = {}

    def timed(run: "Loop") -> "TrainingState":
        started, used = time.monotonic(), time.process_time()
        state = run_loop(run)
        found.update(seconds=time.monotonic() - started, processor_s=time.process_time() - used)
        np.savez(f"{steps}.npz", **{weight.path: weight.numpy() for weight in run.trainer.model.weights})
        return state

    def decoded(source: "Input", *arguments: Any, **named: Any) -> None:
        started = time.monotonic()
        decode(source, *arguments, **named)
        found["decoding_s"] = time.monotonic() - started

    stage.Loop.run, stage.Input.__init__ = timed, decoded
    shutil.rmtree(chosen.paths.work / "cache", ignore_errors=True)
    if steps == "whole":
        stage.frozen_features.choose = lambda *_, **__: None
    stage.train(chosen, clean=True)
    data = manifest.load(chosen.paths.records)
    print(json.dumps({**found, "images": data.splits["train"].examples * (chosen.train.epochs or 0)}))


def until(accuracy: str, seconds: str) -> None:
    """Prints wall and processor seconds of the loop, images and validation accuracy of each evaluation.

    It ends with the first one that reaches `accuracy` or comes after `seconds`.
    """
    chosen = config.load(Path("params.yaml"))
    stage = import_with_tensorflow("perennial.stages.train", chosen.paths.work)
    run_loop, evaluate = stage.Loop.run, stage.Evaluator.evaluate
    started, used, found = 0.0, 0.0, []

    def timed(run: "Loop") -> "TrainingState":
        nonlocal started, used
        started, used = time.monotonic(), time.process_time()
        return run_loop(run)

    def scored(evaluator: "Evaluator", state: "TrainingState") -> "Evaluation":
        new = evaluate(evaluator, state)
        passed = time.monotonic() - started
        images = state.step * chosen.train.batch_size
        found.append((passed, time.process_time() - used, images, new.accuracy))
        if new.accuracy >= float(accuracy) or passed > float(seconds):
            raise Enough
        return new

    stage.Loop.run, stage.Evaluator.evaluate = timed, scored
    with contextlib.suppress(Enough):
        stage.train(chosen, clean=True)
    print(json.dumps({"evaluations": found}))


def profile() -> None:
    """Prints what the operations of an update take one after the other, by kind, in milliseconds.

    Of each operation's times it is the lower quartile: what other processes take is left out.
    """
    found = config.load(Path("params.yaml"))
    logs = {"profile_from_step": PROFILED.start, "profile_steps": len(PROFILED)}
    one_thread = {"intra_op_threads": 1, "inter_op_threads": 1}
    found = found.model_copy(
        update={
            "train": found.train.model_copy(update=one_thread),
            "logging": found.logging.model_copy(update=logs),
        }
    )

    def after(_run: "Loop", state: "TrainingState", _called: float) -> None:
        if state.step >= PROFILED.stop:
            (file,) = found.paths.runs.rglob("*.xplane.pb")
            print(json.dumps(_kinds(file)))
            raise Enough

    _train(found, after)


def _kinds(file: Path) -> dict[str, float]:
    """Milliseconds an update of each kind of operation, in a file of TensorFlow's profiler; largest first."""
    protocol = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = protocol.XSpace.FromString(file.read_bytes())
    times: dict[str, list[float]] = defaultdict(list)
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if name.startswith("while/"):  # in the loop over updates; others prepare the input
                    times[name].append(event.duration_ps / 1e9)
    kinds: defaultdict[str, float] = defaultdict(float)
    for name, each in times.items():
        kind = re.sub("^_Mkl(Native)?(Fused)?", "", name.rpartition(":")[2])
        kinds[kind] += statistics.quantiles(each, n=4)[0] * len(each) / len(PROFILED) if len(each) > 1 else 0
    return dict(sorted(kinds.items(), key=lambda kind: -kind[1]))


def _train(chosen: Config, after: Callable[["Loop", "TrainingState", float], None]) -> None:
    """Trains from the beginning until `after` raises Enough; it gets the time when the call before it began."""
    stage = import_with_tensorflow("perennial.stages.train", chosen.paths.work)
    advance = stage.Loop.advance

    def watched(run: "Loop", state: "TrainingState") -> None:
        called = time.monotonic()
        advance(run, state)
        after(run, state, called)

    stage.Loop.advance = watched
    try:
        stage.train(chosen, clean=True)
    except Enough:
        return


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "speed": speed,
        "head": head,
        "until": until,
        "profile": profile,
    }
    programs[sys.argv[1]](*sys.argv[2:])
