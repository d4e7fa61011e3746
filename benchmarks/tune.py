"""How long a trial of a search takes, beside what a person would write with Optuna.

All draw ten learning rates at random and train the network of the main job fully with each: five epochs of the
digits, and one evaluation at the end, so that no trial stops early. One peer starts `perennial train` for each
trial. The other one trains an equal network with Keras' `fit` in one process, from pixels in memory; it keeps
nothing of a trial that is interrupted, and memory that a trial used up ends the search. Times are of whole
programs, with start-up, and ours with `dvc repro` of the data.

Our trials are processes, too, so the target is about the time of the peer: 0.9, for what a search does beside
its trials. It was 1.5 while trials were forks of a process that had imported TensorFlow.
"""

import json
import subprocess
import sys

from benchmarks import main_job, projects, results
from benchmarks.timing import ENVIRONMENT, PERENNIAL, ROOT, Case, Program, compare

TRIALS, EPOCHS = 10, 5
RATES = "train.learning_rate=1e-4..1e-2:log"
SETTINGS = {"train.epochs": EPOCHS, "train.epochs_between_evals": EPOCHS, "train.stop_threshold": "null"}
PEERS = {
    "a process a trial": ("optuna_processes.py", str(TRIALS)),
    "Keras fit": ("optuna_fit.py", str(TRIALS), str(EPOCHS)),
}
TARGETS = {"a process a trial": 0.9, "Keras fit": 0.3}  # the peer's seconds over ours, at least


def measure() -> None:
    """Measures, prints a table and writes the results."""
    with projects.scratch() as folder:
        main_job.copy(folder)
        # A stage runs with the code of its own checkout.
        own = ("env", f"PYTHONPATH={folder / 'src'}")
        changes = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
        search = ("tune", "--search", RATES, "--json", "--trials")
        for command in (("config", *changes), (*search, "1")):  # also prepares the data
            subprocess.run(
                (*own, *PERENNIAL, *command), cwd=folder, env=ENVIRONMENT, check=True, capture_output=True
            )
        commands = {"perennial": (*PERENNIAL, *search, str(TRIALS))} | {
            name: (sys.executable, str(ROOT / "benchmarks" / "peers" / peer[0]), *peer[1:])
            for name, peer in PEERS.items()
        }
        programs = [
            Program(
                name=name,
                command=(*own, *command),
                folder=folder,
                outputs=[folder / ".work" / "tune"],
                verify=_verify,
            )
            for name, command in commands.items()
        ]
        case = compare(Case(name=f"a search of {TRIALS} trials", programs=programs, targets=TARGETS))
    per_trial = {name: seconds / TRIALS for name, seconds in case["medians"].items()}
    print(", ".join(f"{name} {seconds:.1f} s" for name, seconds in per_trial.items()), "a trial")
    results.write("tune", case=case, seconds_per_trial=per_trial, trials=TRIALS, epochs=EPOCHS)


def _verify(printed: str) -> None:
    scores = [each["score"] for each in json.loads(printed)["trials"]]
    assert len(scores) == TRIALS, f"{len(scores)} trials"
    assert min(scores) > 0.2, f"a trial learned nothing: {scores}"
