"""What a running bot tells about itself: logs, its status, health, metrics and spans."""
