"""From staging tables into the targets, in one transaction."""
