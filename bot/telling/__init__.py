"""What happened, told from disk: it takes no lock and changes nothing, and so works beside a running bot."""
