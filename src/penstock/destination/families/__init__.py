"""What destinations of one kind have in common."""
