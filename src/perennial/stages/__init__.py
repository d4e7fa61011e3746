"""One module for each stage, with a function of the same name that takes the configuration."""

# The stages of dvc.yaml in their order, each with what it does.
STAGES = {
    "download": "Fetch the original files and verify their digests.",
    "convert": "Write TFRecord shards, labels and a manifest.",
    "validate": "Check every record, decode every image and report problems.",
    "initialize": "Copy the weights from which training starts.",
    "train": "Train until the stop rule or the last step.",
    "evaluate": "Score the model on the test split, each example once.",
    "export": "Write a SavedModel and compare its predictions to the model's.",
    "champion": "Fetch the predictions of the champion on the same test split.",
    "gate": "Decide whether the model is good enough to be promoted.",
}
WITH_TENSORFLOW = ("train", "evaluate", "export")
