"""What is planned, trained, scored and verified, and the stages of it that DVC runs."""
