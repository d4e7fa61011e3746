"""Serve an export over HTTP: TensorFlow Serving's REST API, a web page, and metrics."""
