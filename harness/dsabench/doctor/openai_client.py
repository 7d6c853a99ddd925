"""A running server as the users of the official OpenAI client see it."""

from __future__ import annotations

import asyncio

from dsabench.doctor.ask import ServerProbe
from dsabench.errors import one_line
from dsabench.machine.checks import Finding, ok, problem, warning

_CHECK = "openai client"
_TOKENS = 16


async def check_openai_client(asker: ServerProbe, name: str) -> Finding:
    """The `openai` package reads a short streamed answer to its end, with its usage.

    It knows no limit of a line's length, so it asks only a server whose answers were looked at before.
    """
    import openai  # noqa: PLC0415  (a second, which only the check of a server pays)

    asker.tell(_CHECK)
    client = openai.AsyncOpenAI(
        base_url=f"{asker.base_url}/v1",
        api_key=asker.api_key or "EMPTY",
        timeout=asker.timeout_s,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )
    # It takes them from the environment and sends them along, and they are none of this server's business.
    client.organization = client.project = None
    pieces, finish, counted = 0, None, None
    try:
        async with client, asyncio.timeout(asker.question_timeout_s):
            answer = await client.chat.completions.create(
                model=name,
                messages=[{"role": "user", "content": "Count from one to ten."}],
                max_tokens=_TOKENS,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in answer:
                pieces += 1
                counted = chunk.usage.completion_tokens if chunk.usage is not None else counted
                finish = next((one.finish_reason for one in chunk.choices or () if one.finish_reason), finish)
    except TimeoutError:
        return warning(
            _CHECK, f"undecided after {asker.question_timeout_s:g} s: {pieces} pieces of an answer were read"
        )
    except (
        openai.OpenAIError,
        ValueError,
        AttributeError,
        TypeError,
    ) as error:  # what it raises on an answer that is none
        return problem(_CHECK, f"openai {openai.__version__}: {type(error).__name__}: {one_line(str(error), 200)}")
    read = f"openai {openai.__version__} reads {pieces} pieces of a streamed answer"
    if finish is None:
        return problem(_CHECK, f"{read}, and none says how it ended")
    if counted is None:
        return warning(_CHECK, f"{read}, ended by {finish}, without the usage that was asked for")
    return ok(_CHECK, f"{read}, ended by {finish}, {counted} tokens counted")
