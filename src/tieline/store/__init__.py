"""What survives: verified files, presence records, the journal, resource documents."""
