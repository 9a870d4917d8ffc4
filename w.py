"""usage: w.py WHAT N [bare]"""
import sys, gc, os
sys.path.insert(0, "/tmp/prof")
what, n = sys.argv[1], int(sys.argv[2]); side = sys.argv[3] if len(sys.argv) > 3 else "ours"
import trio, bare_trio
if os.environ.get("GC") == "off": gc.disable()
if side == "bare":
    async def main():
        await bare_trio.agent(20, 1, 0, bare_trio.add)
        if what == "W1": await bare_trio.agent(n, 1, 0, bare_trio.add)
        elif what == "W2":
            async with trio.open_nursery() as nur:
                for _ in range(n): nur.start_soon(bare_trio.agent, 5, 1, 0.05, bare_trio.add)
        elif what == "W6":
            if n: await bare_trio.agent(1, n, 0, bare_trio.slow)
    trio.run(main)
else:
    import ours
    async def main():
        await ours.agent(ours.Counting(20)).run(ours.conversation())
        if what == "W1": await ours.agent(ours.Counting(n)).run(ours.conversation())
        elif what == "W2":
            a = ours.agent(ours.Counting(5, delay=0.05)); st = [ours.conversation() for _ in range(n)]
            async with trio.open_nursery() as nur:
                for s in st: nur.start_soon(a.run, s)
        elif what == "W6":
            if n: await ours.agent(ours.Counting(1, calls=n, tool="slow")).run(ours.conversation())
        elif what == "REPLAY":
            from alpineagents.record._codec import decode_history, encode_entry
            from alpineagents import State
            s = ours.conversation()
            await ours.agent(ours.Counting(200)).run(s)
            raws = [encode_entry(e) for e in s.history[:600]]
            for _ in range(n): State(history=decode_history(raws))
        elif what == "COMMIT":
            from alpineagents import State, Message
            m = Message.user("x"); s = State()
            for _ in range(n): s.add_message(m)
        elif what == "READ":
            s = ours.conversation()
            for _ in range(n): s.turn; s.answer; s.usage; s.messages; s.history; s.pending_calls; s.stopped; s.extra_data
        elif what == "SNAP":
            s = ours.conversation()
            for _ in range(n): s.snapshot()
    trio.run(main)
