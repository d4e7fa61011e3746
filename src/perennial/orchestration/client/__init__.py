"""A client of a Prefect server that imports neither Prefect nor TensorFlow, and whose a deployment is."""
