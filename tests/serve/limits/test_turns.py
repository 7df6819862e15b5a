"""Clients share places fairly."""

import asyncio

import pytest

from orbithash.serve.limits.limiters import largest_share
from orbithash.serve.limits.turns import NoTurnError, Turns


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def run(test):
    # In a loop of its own: a browser of other tests may leave one running in this thread.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(test, 60))
    finally:
        loop.close()


async def asked(turns, client, given, **options):
    """Ask for a place in the background; `given` gets the client once it has it."""

    async def wait():
        await turns.take(client, **options)
        given.append(client)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    return task


def test_a_client_alone_takes_all_places_and_of_two_each_gets_half():
    async def test():
        clock = Clock()
        turns, given = Turns(4, clock=clock), []
        for _ in range(6):
            await asked(turns, "a", given)
        assert given == ["a"] * 4
        await asked(turns, "b", given)
        turns.release("a")
        turns.release("a")
        await asyncio.sleep(0)
        # a has its half now: the free place is for b, which was there a moment ago.
        assert given == ["a"] * 4 + ["b"]
        turns.release("b")
        clock.now = 2.0
        turns.release("a")
        await asyncio.sleep(0)
        assert given == ["a"] * 4 + ["b"] + ["a"] * 2

    run(test())


def test_free_places_go_to_the_waiting_clients_in_rotation():
    async def test():
        turns, given = Turns(1), []
        for client in "aaaabcab":
            await asked(turns, client, given)
        for client in "aabcabaa"[:7]:
            turns.release(client)
            await asyncio.sleep(0)
        assert "".join(given) == "aabcabaa"

    run(test())


def test_work_that_has_begun_comes_first_and_may_wait_where_others_may_not():
    async def test():
        turns, given = Turns(1, max_waiting=1), []
        await asked(turns, "a", given)
        waiting = await asked(turns, "a", given)
        with pytest.raises(NoTurnError):
            await turns.take("a")
        begun = await asked(turns, "a", given, has_begun=True)
        turns.release("a")
        await asyncio.sleep(0)
        await begun
        assert not waiting.done()
        assert len(turns) == 2

    run(test())


def test_when_too_many_wait_the_client_with_most_of_them_loses_its_latest():
    async def test():
        turns, given = Turns(1, max_waiting=3), []
        tasks = [await asked(turns, "a", given) for _ in range(4)]
        friendly = await asked(turns, "b", given)
        await asyncio.sleep(0)
        assert isinstance(tasks[3].exception(), NoTurnError)
        with pytest.raises(NoTurnError):
            await turns.take("a")
        turns.release("a")
        turns.release("a")
        await friendly

    run(test())


def test_a_cancelled_wait_leaves_no_place_taken():
    async def test():
        turns, given = Turns(1), []
        await asked(turns, "a", given)
        waiting, following = await asked(turns, "b", given), await asked(turns, "c", given)
        waiting.cancel()
        await asyncio.sleep(0)
        late = await asked(turns, "d", given)
        turns.release("a")
        await following
        turns.release("c")  # d has been given the place, and is cancelled at the same moment
        late.cancel()
        await asyncio.sleep(0)
        assert len(turns) == 0
        assert given == ["a", "c"]

    run(test())


def test_a_wait_that_is_refused_and_cancelled_at_the_same_moment_frees_no_place():
    async def test():
        turns, given = Turns(1, max_waiting=3), []
        tasks = [await asked(turns, "a", given) for _ in range(4)]
        refusing = asyncio.ensure_future(turns.take("b"))
        asyncio.get_running_loop().call_soon(tasks[3].cancel)  # before it learns of the refusal
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert tasks[3].done()
        assert not refusing.done()
        assert given == ["a"]
        assert len(turns) == 4

    run(test())


def test_no_client_takes_more_than_its_largest_share():
    async def test():
        turns, given = Turns(8, largest_share=largest_share), []
        for client in ["192.0.2.1"] * 8 + ["127.0.0.1"] * 8:
            await asked(turns, client, given)
        assert given.count("192.0.2.1") == 2
        assert given.count("127.0.0.1") == 4  # half, beside another client

    run(test())
