"""What must hold in the source before a pipeline can run."""
