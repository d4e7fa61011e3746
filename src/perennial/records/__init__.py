"""TFRecord files with tf.Example records, their manifest, index and checks."""
