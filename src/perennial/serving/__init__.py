"""Serving of an export over HTTP: TensorFlow Serving's REST API, a page for people, and metrics."""
