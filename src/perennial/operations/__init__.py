"""What runs beside the pipeline: serving, monitoring, reports, deployments, rehearsals, first steps."""
