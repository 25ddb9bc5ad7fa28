// Lists and calls tools with the official TypeScript client; prints `ok` if all is as it must be. Arguments: a URL, or the words of a command.

import assert from "node:assert";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [first, ...rest] = process.argv.slice(2);
const transport = first.startsWith("http://")
  ? new StreamableHTTPClientTransport(new URL(first))
  : new StdioClientTransport({ command: first, args: rest });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);

const { tools } = await client.listTools();
const names = tools.map((tool) => tool.name);
assert(names.includes("calculator__calculate") && !names.includes("files__read_file"), names.join());

const call = (name, args) => client.callTool({ name, arguments: args });
const sum = await call("calculator__calculate", { expression: "123 + 456" });
assert(!sum.isError && sum.content[0].text.includes("579"), JSON.stringify(sum));
const found = await call("text__find_text", { text: "北京，上海，北京", pattern: "北京" });
assert(!found.isError && found.content[0].text.includes("北京"), JSON.stringify(found));
const denied = await call("files__read_file", { path: "/etc/passwd" });
assert(denied.isError && denied.content[0].text.includes("hint:"), JSON.stringify(denied));
assert.equal(denied._meta["honeycomb/error"].code, "policy.denied");

await client.close();
console.log("ok");
