"""A search of the learning rate with Optuna that starts `perennial train` for each trial.

`optuna_processes TRIALS`, in a project with records. Prints the trials as JSON.
"""

import json
import subprocess
import sys
from pathlib import Path

import optuna


def trained(trial: optuna.Trial) -> float:
    """The validation accuracy of a training with the learning rate of a trial."""
    rate = trial.suggest_float("rate", 1e-4, 1e-2, log=True)
    command = [sys.executable, "-m", "perennial", "train", "--clean", "--set", f"train.learning_rate={rate}"]
    subprocess.run(command, check=True, capture_output=True)
    record = json.loads(Path("metrics/training.json").read_text(encoding="utf-8"))
    return float(record["evaluations"][-1]["accuracy"])


def main(trials: str) -> None:
    """Searches and prints the trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), direction="maximize")
    study.optimize(trained, n_trials=int(trials))
    print(json.dumps({"trials": [{"score": each.value} for each in study.trials]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
