"""What MLflow shows of runs and scores."""
