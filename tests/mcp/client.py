"""Lists and calls tools with the official Python client; prints `ok` if all is as it must be. Arguments: a URL, or the words of a command."""

import asyncio
import sys

from mcp import Client, StdioServerParameters


async def main(words):
    server = words[0] if words[0].startswith("http://") else StdioServerParameters(command=words[0], args=words[1:])
    # The handshake of 2025's versions, and then whatever the newest client would rather have.
    for mode in ["legacy", "auto"]:
        async with Client(server, mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "files__read_file" not in tools, tools.keys()
            assert tools["calculator__calculate"].input_schema["type"] == "object"

            result = await client.call_tool("calculator__calculate", {"expression": "123 + 456"})
            assert not result.is_error and "579" in result.content[0].text, result
            result = await client.call_tool("text__find_text", {"text": "北京，上海，北京", "pattern": "北京"})
            assert not result.is_error and "北京" in result.content[0].text, result
            result = await client.call_tool("files__read_file", {"path": "/etc/passwd"})
            assert result.is_error and "hint:" in result.content[0].text, result
            assert result.meta["honeycomb/error"]["code"] == "policy.denied", result
    print("ok")


asyncio.run(main(sys.argv[1:]))
