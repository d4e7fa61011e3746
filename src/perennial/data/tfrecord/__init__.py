"""The TFRecord format and the tf.Example messages in it, without TensorFlow."""
