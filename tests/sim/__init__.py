"""A seeded simulation of the whole bot in virtual time: real core, fake world, crashes at every operation."""
