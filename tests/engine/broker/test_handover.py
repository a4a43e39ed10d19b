from __future__ import annotations

import asyncio
import threading

from engine.broker.put.handover import Handover


def run_in_a_thread(*works: object) -> None:
    def work() -> None:
        for one in works:
            assert callable(one)
            one()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_in_order_in_the_loops_thread_and_one_that_fails_holds_nobody_up() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        faults: list[object] = []
        loop.set_exception_handler(lambda loop, context: faults.append(context["exception"]))
        handover, told = Handover(loop), []

        def tell(number: int) -> None:
            told.append((number, threading.current_thread() is threading.main_thread()))
            if number == 1:
                raise ValueError("mine")

        run_in_a_thread(*(lambda number=number: handover(tell, number) for number in range(4)))
        assert not told
        await asyncio.sleep(0.01)
        assert told == [(number, True) for number in range(4)]
        assert [str(fault) for fault in faults] == ["mine"]

    asyncio.run(run())


def test_once_a_turn_each() -> None:
    async def run() -> None:
        handover = Handover(asyncio.get_running_loop())
        told: list[str] = []

        def flush() -> None:
            told.append("flush")

        def transfer() -> None:
            told.append("transfer")

        for turn in (1, 2):
            for _ in range(3):
                handover.once(flush)
                handover.once(transfer)
            assert len(told) == 2 * (turn - 1)
            await asyncio.sleep(0)
            assert told == ["flush", "transfer"] * turn

    asyncio.run(run())


def test_when_the_loop_has_ended_who_asks_does_it() -> None:
    loop = asyncio.new_event_loop()
    handover = Handover(loop)
    loop.close()
    told: list[int] = []
    for _ in range(2):
        handover.once(lambda: told.append(1))
    handover(told.append, 2)
    assert told == [1, 1]
