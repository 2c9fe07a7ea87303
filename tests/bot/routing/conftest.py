from tests.sim.loop import virtual_time

anyio_backend = virtual_time


async def serve(bot, platform, *messages):
    """Hand messages over, each when the one before it has its outcome."""
    for message in messages:
        await bot.orchestrator.receive(message)
        await platform.settled(message.id)
