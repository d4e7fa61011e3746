"""Networks, preprocessing, optimizers, schedules and formats of this project, which params.yaml names."""
