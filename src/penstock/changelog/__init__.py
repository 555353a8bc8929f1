"""The change log: immutable Arrow segments between capture and its readers."""
