"""anycore beside other embedding engines on the same work: `make bench-peers`."""
