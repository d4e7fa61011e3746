"""One module a stage; each holds a function of the same name that takes the configuration."""

# The stages of dvc.yaml in their order, each with what it does.
STAGES = {
    "download": "Fetch the original files and verify their digests.",
    "convert": "Write TFRecord shards, labels and a manifest.",
    "validate": "Read every record, decode every image, report what is wrong.",
    "train": "Train until the stop rule or the last update.",
    "evaluate": "Score the model on the test split, each example once.",
    "export": "Write a SavedModel that is proven to answer as the model does.",
    "gate": "Decide whether the model is good enough to be promoted.",
}
