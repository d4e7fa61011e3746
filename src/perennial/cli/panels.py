"""The commands of `perennial --help` in their panels: one line, the page about each, and its module."""

from collections.abc import Mapping
from typing import NamedTuple

from perennial.base.project.stage_table import STAGES


class Listed(NamedTuple):
    """A command in a panel."""

    about: str  # its help
    page: str  # of `perennial docs`
    module: str  # of this package; it is imported when the command is used


PANELS: Mapping[str, Mapping[str, Listed]] = {
    "Start": {
        "new": Listed("Make a project for your images, or add a pipeline.", "tutorial", "project_commands"),
        "run": Listed("Run all stages here, or start a run of a deployment.", "start-a-run", "run_commands"),
        "report": Listed("Summarize the last run, and write its page.", "report", "commands"),
        "predict": Listed("Classify images.", "predict", "commands"),
        "serve": Listed("Serve a model over HTTP, with a page and metrics.", "serve", "serve_command"),
        "status": Listed("Show the model in use, next and last runs, problems.", "operations", "run_commands"),
        "config": Listed("Check, print or change params.yaml; apply a preset.", "options", "commands"),
        "docs": Listed("Read the documentation, offline.", "index", "docs_command"),
        "models": Listed("List the networks: size, published accuracy, weights.", "networks", "model_commands"),
    },
    "Versions": {
        "versions": Listed("List the versions of the model, newest first.", "versions", "version_commands"),
        "promote": Listed("Make this model a version and the champion.", "versions", "version_commands"),
        "approve": Listed("List models that wait for a person; decide on one.", "approval", "version_commands"),
        "rollback": Listed("Make an earlier version the champion again.", "versions", "version_commands"),
        "why": Listed("Explain why two scores differ.", "why", "reproduce_commands"),
        "runs": Listed("List and compare runs, or write a page of them.", "runs", "run_commands"),
        "rebuild": Listed("Train a version again, and compare every digest.", "rebuild", "reproduce_commands"),
        "publish": Listed("Publish a model that passed the gate, or roll back.", "publish", "commands"),
        "fetch": Listed("Fetch a published version, and verify every file.", "publish", "commands"),
        "verify": Listed("Compare a published model with what git records.", "verify", "reproduce_commands"),
    },
    "Data": {
        "start": Listed("Write params.yaml for your images, and print why.", "own-images", "project_commands"),
        "show": Listed("Print a record, or save its image.", "validate", "commands"),
        "label": Listed("Label kept images, and propose them on a branch.", "label", "label_commands"),
        "seen": Listed("List the versions that learned from an image.", "forget", "lineage_commands"),
        "forget": Listed("Remove an image, and exclude it from later versions.", "forget", "lineage_commands"),
        "audit": Listed("Check that data and models of versions are intact.", "audit", "object_commands"),
        "gc": Listed("List what takes space; with --yes, remove it.", "garbage", "object_commands"),
        "remote": Listed("Say where DVC keeps data and models.", "s3", "object_commands"),
    },
    "Production": {
        "deploy": Listed("Register the schedules on the Prefect server.", "deployments", "project_commands"),
        "worker": Listed("Work for the deployments of this project.", "workers", "project_commands"),
        "monitor": Listed("Look for a reason to retrain; test the alerts.", "monitor", "run_commands"),
        "tune": Listed("Search settings by validation scores; keep the best.", "tune", "project_commands"),
        "cross-validate": Listed("Score and check all images.", "cross-validate", "project_commands"),
        "test": Listed("Run all stages once on a small sample, elsewhere.", "components", "project_commands"),
        "rehearse": Listed("Run the pipeline under faults.", "rehearse", "reproduce_commands"),
        "add": Listed("Install an extra, such as tune or onnx.", "components", "project_commands"),
        "upgrade": Listed("Move the project to another version of perennial.", "upgrades", "project_commands"),
    },
    "Stages, for scripts": {
        **{name: Listed(stage.about, stage.page, "stage_commands") for name, stage in STAGES.items()},
        "pin": Listed("Note which data, weights and champion a run uses.", "how-it-works", "version_commands"),
        "record": Listed("Commit and push what a run made.", "versions", "version_commands"),
    },
}
LISTED = {name: each for commands in PANELS.values() for name, each in commands.items()}
HIDDEN = {"flow-run": "run_commands"}
