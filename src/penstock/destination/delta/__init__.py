"""`delta`: Delta tables in a folder, merged by delta-rs in the driver."""
