"""``kinesis``: every change as a record, in order partition key by partition key."""
