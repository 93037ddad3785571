"""Requests of one turn of the event loop reach the writer together, and its answers come back together."""

import asyncio
from concurrent.futures import Future
from functools import partial

import pytest

from safedial.service.app_state import WriterCalls
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StoreUnavailable

SPEC = {"dim": 1, "threshold": 1, "total_risk": 0.05, "reward_noise": 1, "cost_noise": 1}
SPEC |= {"coefficient_bound": 1, "context_bound": 1}


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as made:
        yield made


def batches_of(store):
    """The sizes of the batches that the writer takes from now on."""
    sizes, batch = [], store._batch

    def counted(jobs):
        sizes.append(len(jobs))
        batch(jobs)

    store._batch = counted
    return sizes


def test_requests_of_one_turn_of_the_loop_are_one_batch(store):
    study = Study.create("s", SPEC, storage=store)
    calls, sizes = WriterCalls(store, seconds=10), batches_of(store)

    async def ask_all():
        return await asyncio.gather(*(calls.call(partial(study.ask, [0.1 * number])) for number in range(8)))

    made = asyncio.run(ask_all())
    assert [each.body["context"][0] for each in made] == pytest.approx([0.1 * number for number in range(8)])
    assert sizes == [8]
    assert study.ask([0.5]).seq > made[-1].seq  # threads are not kept waiting afterwards


def test_a_refused_operation_fails_alone(store):
    study = Study.create("s", SPEC, storage=store)
    calls = WriterCalls(store, seconds=10)

    async def ask_all():
        asked = [
            calls.call(partial(study.ask, [0.1], key="a")),
            calls.call(partial(study.ask, [0.2], key="a")),
            calls.call(partial(study.ask, [9])),
        ]
        return await asyncio.gather(*asked, return_exceptions=True)

    first, reused, outside = asyncio.run(ask_all())
    assert first.body["context"] == [0.1]
    assert "was used for another request" in str(reused)
    assert "context" in str(outside)
    assert study.ask([0.3]).seq == first.seq + 1


def test_an_answer_that_does_not_come_in_time_is_taken_back(store):
    future = Future()
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        asyncio.run(WriterCalls(store, seconds=0.01).call(lambda wait: future))
    assert future.cancelled()


def test_a_request_that_ends_takes_its_operation_back(store):
    future = Future()

    async def end():
        task = asyncio.create_task(WriterCalls(store, seconds=10).call(lambda wait: future))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(end())
    assert future.cancelled()


def test_who_waits_for_an_answer_is_not_kept_back(store):
    study = Study.create("s", SPEC, storage=store)
    calls = WriterCalls(store, seconds=10)

    async def both():
        asked = asyncio.create_task(calls.call(partial(study.ask, [0.1])))
        await asyncio.sleep(0)
        return study.ask([0.2]), await asked  # the first in the loop's own thread

    waited, asked = asyncio.run(both())
    assert waited.seq == asked.seq + 1


def test_another_loop_begins_anew_after_one_that_was_closed_with_a_request_under_way(store):
    study = Study.create("s", SPEC, storage=store)
    calls, future = WriterCalls(store, seconds=10), Future()
    loop = asyncio.new_event_loop()
    task = loop.create_task(calls.call(lambda wait: future))
    loop.call_soon(loop.stop)
    loop.run_forever()
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    future = Future()
    asyncio.run(asyncio.wait_for(calls.call(partial(study.ask, [0.1])), 5))
    calls._done(loop, loop.create_future(), future)  # the answer for the loop that is gone
    assert asyncio.run(calls.call(partial(study.ask, [0.2]))).seq > 0


def test_a_store_that_closes_finishes_what_was_kept_back(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/trial.db")
    study = Study.create("s", SPEC, storage=store)
    store.hold()
    asked = study.ask([0.1], wait=False)
    store.close()
    assert asked.result(1).action >= 0
