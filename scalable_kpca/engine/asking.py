"""Calls of a `distributed` client that end, whatever has become of scheduler and workers: by an answer or in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from scalable_kpca.errors import ClusterError

__all__ = ["ask_workers", "within"]

CANCEL_SECONDS = 5.0  # for a call to notice that it is no longer waited for


def within(client: Any, seconds: float, call: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a method of the client, or of another coroutine function; TimeoutError when it takes longer."""

    async def ends() -> Any:
        return await asyncio.wait_for(call(*arguments), seconds)  # methods of the client know its loop, and return

    return asyncio.run_coroutine_threadsafe(ends(), client.loop.asyncio_loop).result(seconds + CANCEL_SECONDS)


def ask_workers(client: Any, seconds: float, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a function returns on each worker, by address.

    Raises
    ------
    ClusterError
        Naming workers that do not answer in time, or on which the function fails; not those that leave meanwhile.
    """
    answers: dict[str, Any] = {}

    async def ask() -> list[str]:
        asked = {
            address: asyncio.ensure_future(client.run(function, *arguments, workers=[address], on_error="return"))
            for address in await client.nthreads()
        }
        if asked:
            await asyncio.wait(asked.values(), timeout=seconds)
        present = await client.nthreads()
        silent = []
        for address, answer in asked.items():
            if not answer.done():
                answer.cancel()
                silent.append(address)
            elif address in present:
                answers[address] = answer.exception() or answer.result().get(address)
        return [address for address in silent if address in present]

    try:
        silent = within(client, 2 * seconds + CANCEL_SECONDS, ask)
    except TimeoutError as error:
        raise ClusterError(
            f"the Dask scheduler at {client.scheduler.address} did not answer within {2 * seconds:g} s; look at its "
            "log, and run again."
        ) from error
    if silent:
        raise ClusterError(
            f"worker {', '.join(silent[:4])} did not answer within {seconds:g} s; look at its log, end it or set "
            "cluster.wait higher, and run again."
        )
    for address, answer in answers.items():
        if isinstance(answer, Exception):
            raise ClusterError(
                f"worker {address} cannot take part ({answer}); give workers and this process the same environment, "
                "and see that the worker is alive."
            ) from answer
    return {address: answer for address, answer in answers.items() if answer is not None}  # None: it came back since
