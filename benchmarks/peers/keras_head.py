"""Keras' `fit` of a new top on a frozen MobileNet V2, as its transfer-learning guide writes it.

`keras_head FOLDER SIZE EPOCHS`: FOLDER holds a folder of images per class. Weights are random, which takes as
long as those of ImageNet. Decoded images are cached. Prints how long `fit` took, with compiling and decoding.
"""

import json
import sys
import time

import keras
from keras import layers

BATCH = 32


def main(folder: str, size: str, epochs: str) -> None:
    """Trains and prints what was found."""
    shape = int(size), int(size)
    images = keras.utils.image_dataset_from_directory(folder, image_size=shape, batch_size=None, verbose=False)
    count, classes = int(images.cardinality()), len(images.class_names)
    batches = images.cache().shuffle(count).batch(BATCH).prefetch(2)
    started = time.monotonic()
    for _ in batches:  # fills the cache
        pass
    decoding_s = time.monotonic() - started
    base = keras.applications.MobileNetV2(weights=None, include_top=False, input_shape=(*shape, 3))
    base.trainable = False
    inputs = keras.Input((*shape, 3))
    x = base(layers.Rescaling(1 / 255)(inputs), training=False)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, layers.Dense(classes)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"])
    started, used = time.monotonic(), time.process_time()
    model.fit(batches, epochs=int(epochs), verbose=0)
    found = {"seconds": time.monotonic() - started, "processor_s": time.process_time() - used}
    print(json.dumps({**found, "decoding_s": decoding_s, "images": count * int(epochs)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
