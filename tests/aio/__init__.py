"""Tests of alpineagents.aio: sync functions, since asyncio runs in them and not trio."""
