"""TFRecord files with tf.Example records, their manifest and index."""
