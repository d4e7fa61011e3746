"""Names of the files in an export."""

from pathlib import Path

GRAPH = "saved_model.pb"
README = "README.md"
LABELS = Path("assets") / "labels.txt"
CARD = Path("assets") / "model_card.json"
EXTRA = Path("assets.extra")  # TensorFlow Serving ignores this folder
DESCRIPTION = EXTRA / "model.json"  # everything about the model except its weights
DIGESTS = EXTRA / "files.json"  # SHA-256 of each file, written once it gives the evaluated model's predictions
REFERENCE = EXTRA / "reference.json"  # validation images as the model sees them, to measure drift against
