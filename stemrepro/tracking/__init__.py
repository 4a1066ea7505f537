"""MLflow's view of runs and scores."""
