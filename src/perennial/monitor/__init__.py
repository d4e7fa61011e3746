"""Whether the model in use is still good: its source, score on new data, drift and age, and rules on these."""
