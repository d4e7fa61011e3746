"""The pipeline from original files to a decision about the new model."""

from prefect import flow

from tasks.command import check_parameters, run
from tasks.publish import publish, wanted
from tasks.stages import convert, download, evaluate, export, gate, train, validate
from tasks.summary import summarize


@flow(log_prints=True)
def retrain() -> dict[str, str]:
    """Retrains the model; stages whose inputs are unchanged are skipped."""
    check_parameters()
    outcomes: dict[str, str] = {
        "download": download(),
        "convert": convert(),
        "validate": validate(),
        "train": train(),
        "evaluate": evaluate(),
        "export": export(),
        "gate": gate(),
    }
    try:
        if wanted():
            outcomes["publish"] = publish()
    finally:  # what was trained is told of, whether it got there or not
        facts = summarize(outcomes)
    return facts


if __name__ == "__main__":
    run(retrain)
