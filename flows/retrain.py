"""The pipeline from source files to a decision about the new model."""

from typing import Literal

from prefect import flow

from tasks.command import check_parameters, run
from tasks.git import end_record, pin_champion, record, record_failure, start_record
from tasks.guard import one_at_a_time
from tasks.stages import (
    champion,
    convert,
    download,
    evaluate,
    export,
    gate,
    initialize,
    publish,
    publishing,
    train,
    validate,
)
from tasks.summary import summarize

TRIES = 5  # another run may promote its model between the gate and the push
UNRECORDED = ("kept", "refused")


@flow(log_prints=True, on_failure=[record_failure], on_crashed=[record_failure])
def retrain(
    push: bool = False, pipeline: str = "classifier", when_busy: Literal["end", "wait"] = "end"
) -> dict[str, str]:
    """Retrain the model. Stages whose inputs are unchanged are skipped.

    With `push`, the run is committed and pushed, and a model that passes the gate becomes champion. One run of
    a pipeline works at a time: while another does, this one ends, or waits, as `when_busy` says.
    """
    with one_at_a_time(pipeline, when_busy):
        check_parameters()
        start_record()
        results: dict[str, str] = {
            "download": download(),
            "convert": convert(),
            "validate": validate(),
            "initialize": initialize(),
            "train": train(),
            "evaluate": evaluate(),
            "export": export(),
        }
        for _ in range(TRIES if push else 1):
            pin_champion(fetch=push)
            results["champion"] = champion()
            results["gate"] = gate()
            if push:
                results["record"] = record()
            if results.get("record") != "refused":
                break
        try:
            if publishing() and results.get("record") not in UNRECORDED:
                results["publish"] = publish()
        finally:  # summarize even if publishing fails
            facts = summarize(results)
            end_record(results)
        return facts


if __name__ == "__main__":
    run(retrain)
