"""What destinations share that send messages: lanes, and events on their way to them."""
