"""The pipeline from source files to a decision about the new model."""

from prefect import flow

from tasks.command import check_parameters, run
from tasks.stages import convert, download, evaluate, export, gate, publish, publishing, train, validate
from tasks.summary import summarize


@flow(log_prints=True)
def retrain() -> dict[str, str]:
    """Retrain the model. Stages whose inputs are unchanged are skipped."""
    check_parameters()
    results: dict[str, str] = {
        "download": download(),
        "convert": convert(),
        "validate": validate(),
        "train": train(),
        "evaluate": evaluate(),
        "export": export(),
        "gate": gate(),
    }
    try:
        if publishing():
            results["publish"] = publish()
    finally:  # summarize even if publishing fails
        facts = summarize(results)
    return facts


if __name__ == "__main__":
    run(retrain)
