"""What several transports share: delivery, links, backfill, live updates."""
