"""One module for each stage, with a function of the same name that takes the configuration."""
