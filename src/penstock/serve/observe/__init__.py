"""What pipelines do, as the server sees it: metrics over time, events, what their stores hold."""
