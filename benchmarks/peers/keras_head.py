"""Keras' `fit` of a new top on a frozen MobileNet V2, in the two ways of its transfer-learning guide.

`keras_head WORKFLOW FOLDER SIZE EPOCHS`: FOLDER holds a folder of images per class. `frozen` runs the base in
each epoch; `recorded` runs it once, records its pooled outputs and fits the top on them, which the guide
advises for images that are not augmented. Weights are random, which takes as long as those of ImageNet. Decoded
images are cached. Prints how long the base and `fit` took, with compiling, and how long decoding took before.
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

BATCH = 32
Labels = NDArray[np.int32]


def pooled_base(shape: tuple[int, int, int]) -> keras.Model:
    """The frozen base, from pixels to its pooled outputs."""
    base = keras.applications.MobileNetV2(weights=None, include_top=False, input_shape=shape)
    base.trainable = False
    inputs = keras.Input(shape)
    outputs = layers.GlobalAveragePooling2D()(base(layers.Rescaling(1 / 255)(inputs), training=False))
    return keras.Model(inputs, outputs)


def compiled_top(inputs: keras.KerasTensor, features: keras.KerasTensor, classes: int) -> keras.Model:
    """A model from `inputs` to the logits of the new top, which takes `features`."""
    model = keras.Model(inputs, layers.Dense(classes)(layers.Dropout(0.2)(features)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"])
    return model


def frozen(base: keras.Model, images: tf.data.Dataset, labels: Labels, epochs: int) -> None:
    """Fits the top with the base in each step."""
    batches = images.shuffle(len(labels)).batch(BATCH).prefetch(2)
    model = compiled_top(base.input, base.output, len(np.unique(labels)))
    model.fit(batches, epochs=epochs, verbose=0)


def recorded(base: keras.Model, images: tf.data.Dataset, labels: Labels, epochs: int) -> None:
    """Runs the base once and fits the top on what it gave, which is shuffled in each epoch."""
    features = base.predict(images.batch(BATCH).prefetch(2), verbose=0)
    inputs = keras.Input(features.shape[1:])
    model = compiled_top(inputs, inputs, len(np.unique(labels)))
    model.fit(features, labels, batch_size=BATCH, epochs=epochs, verbose=0)


def main(workflow: str, folder: str, size: str, epochs: str) -> None:
    """Trains and prints what was found."""
    shape = int(size), int(size)
    images = keras.utils.image_dataset_from_directory(
        folder, image_size=shape, batch_size=None, verbose=False
    ).cache()  # in the order of the first pass
    started = time.monotonic()
    labels = np.concatenate([labels for _, labels in images.batch(BATCH)])  # fills the cache
    decoding_s = time.monotonic() - started
    base = pooled_base((*shape, 3))
    started, used = time.monotonic(), time.process_time()
    {"frozen": frozen, "recorded": recorded}[workflow](base, images, labels, int(epochs))
    found = {"seconds": time.monotonic() - started, "processor_s": time.process_time() - used}
    print(json.dumps({**found, "decoding_s": decoding_s, "images": len(labels) * int(epochs)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
