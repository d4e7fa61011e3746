"""Networks, training, evaluation, export and inference."""
