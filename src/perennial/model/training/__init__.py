"""Training. Read in this order: shuffle (which example comes when), cache, input, train_step and loop."""
