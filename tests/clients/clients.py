"""Asks the tests' model server with the official clients; prints `ok` if they are pleased. Arguments: `openai` or `anthropic`, URL."""

import json
import sys
import urllib.error
import urllib.request

TASK = "北京天气怎么样？"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def same(got, expected):
    assert got == expected, f"{got!r} is not {expected!r}"


def refused(error_class, ask, words):
    try:
        ask()
    except error_class as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nobody refused: {words}")


def openai(url):
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="test", max_retries=0)
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "", "parameters": SCHEMA}}]
    ask = lambda messages, **more: client.chat.completions.create(model="fake", messages=messages, **more)
    user = {"role": "user", "content": TASK}

    answer = ask([user])
    same((answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage.total_tokens), ("579", "stop", 15))
    chunks = list(ask([user], stream=True, stream_options={"include_usage": True}))
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), "北京今天晴。")
    same(chunks[-1].usage.prompt_tokens, 10)

    message = ask([user], tools=tools).choices[0].message
    same(json.loads(message.tool_calls[0].function.arguments), {"city": "北京"})
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "晴 21"}
    refused(openai.BadRequestError, lambda: ask([user, message], tools=tools), "tool_call")
    same(ask([user, message, result], tools=tools).choices[0].message.content, "晴，21 °C。")

    with client.chat.completions.stream(model="fake", messages=[user], tools=tools) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    same([json.loads(call.function.arguments)["city"] for call in calls], ["Paris", "北京"])

    refused(openai.AuthenticationError, lambda: ask([user], extra_headers={"Authorization": ""}), "API key")
    refused(openai.RateLimitError, lambda: ask([user]), "slow down")
    patient = client.with_options(max_retries=2)
    answer = patient.chat.completions.create(model="fake", messages=[user])
    same(answer.choices[0].message.content, "once more")
    refused(Exception, lambda: list(ask([user], stream=True)), "")


def anthropic(url):
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="test", max_retries=0)
    tools = [{"name": "get_weather", "description": "", "input_schema": SCHEMA}]
    ask = lambda messages, **more: client.messages.create(model="fake", max_tokens=100, messages=messages, **more)
    user = {"role": "user", "content": TASK}

    answer = ask([user])
    same((answer.content[0].text, answer.stop_reason, answer.usage.input_tokens), ("579", "end_turn", 10))
    with client.messages.stream(model="fake", max_tokens=100, messages=[user]) as stream:
        same("".join(stream.text_stream), "北京今天晴。")
        same(stream.get_final_message().usage.output_tokens, 5)

    turn = ask([user], tools=tools)
    same((turn.stop_reason, turn.content[-1].input), ("tool_use", {"city": "北京"}))
    said = {"role": "assistant", "content": turn.content}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": turn.content[-1].id, "content": "晴 21"}]}
    refused(anthropic.BadRequestError, lambda: ask([user, said, user], tools=tools), "tool_result")
    same(ask([user, said, result], tools=tools).content[0].text, "晴，21 °C。")

    with client.messages.stream(model="fake", max_tokens=100, messages=[user], tools=tools) as stream:
        blocks = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    same([block.input["city"] for block in blocks], ["Paris", "北京"])

    # The client itself sends nothing without a key.
    refused(urllib.error.HTTPError, lambda: urllib.request.urlopen(f"{url}/v1/messages", data=b"{}"), "401")
    refused(anthropic.RateLimitError, lambda: ask([user]), "slow down")
    same(ask([user]).content[0].text, "once more")
    refused(Exception, lambda: list(ask([user], stream=True)), "")


{"openai": openai, "anthropic": anthropic}[sys.argv[1]](sys.argv[2])
print("ok")
