"""An export behind HTTP: TensorFlow Serving's REST form, a page for people, and metrics."""
