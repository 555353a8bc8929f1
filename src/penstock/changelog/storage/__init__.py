"""Where the files of a change log are: a folder, or a bucket with a prefix."""
