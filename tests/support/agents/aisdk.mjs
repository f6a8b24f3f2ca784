// A tool loop of the AI SDK. Arguments: the provider, the model, the text of the user.
import { readFile } from "node:fs/promises";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { z } from "zod";

const [provider, model, prompt] = process.argv.slice(2);
const apiKey = process.env.HEADRACE_KEY;
const baseURL = `${process.env.HEADRACE_URL}/v1`;
const models = {
  openai: () => createOpenAI({ baseURL, apiKey })(model),
  "openai-chat": () => createOpenAI({ baseURL, apiKey }).chat(model),
  "openai-compatible": () => createOpenAICompatible({ name: "headrace", baseURL, apiKey })(model),
  anthropic: () => createAnthropic({ baseURL, apiKey })(model),
};
const tools = {
  read_file: tool({
    description: "Reads a file",
    inputSchema: z.object({ path: z.string() }),
    execute: ({ path }) => readFile(path, "utf8"),
  }),
  shell: tool({
    description: "Runs a command",
    inputSchema: z.object({ command: z.string() }),
    execute: async ({ command }) => (await promisify(execFile)("bash", ["-c", command])).stdout,
  }),
};
// A model that sees gets the picture with the task.
async function pictures() {
  if (!model.includes("seeing")) return [];
  return [{ type: "file", mediaType: "image/png", data: await readFile("picture.png") }];
}
const result = streamText({
  model: models[provider](),
  messages: [{ role: "user", content: [{ type: "text", text: prompt }, ...(await pictures())] }],
  tools,
  stopWhen: stepCountIs(9),
  onError: ({ error }) => {
    console.error(error);
    process.exitCode = 1;
  },
});
for await (const text of result.textStream) process.stdout.write(text);
