"""The classes of images by a plain script: `saved_model EXPORT IMAGE...`."""

import sys
from pathlib import Path

import tensorflow as tf

export, *images = map(Path, sys.argv[1:])
classify = tf.saved_model.load(str(export)).signatures["classify_bytes"]
names = (export / "assets" / "labels.txt").read_text(encoding="utf-8").splitlines()
for image in images:
    found = classify(image=tf.constant([image.read_bytes()]))
    label = int(found["classes"][0])
    print(f"{names[label].partition(':')[2]} {float(found['probabilities'][0][label]):.4f}")
