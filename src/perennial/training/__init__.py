"""Training. In reading order: records.pipeline, then here shuffle, cache, input, train_step and loop."""
