"""Training. Read in this order: records.pipeline, then shuffle, cache, input, train_step and loop."""
