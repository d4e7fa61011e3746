"""Projects of one's own: folders that hold parameters, flows and pins, and run an installed perennial."""
