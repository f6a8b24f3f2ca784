// A first request in several languages.
const PROMPT = "What is a river?";
const quoted = (text) => JSON.stringify(text);
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const curl = (base, key, model) => {
  const body = JSON.stringify({ model, messages: [{ role: "user", content: PROMPT }] });
  return `curl ${base}/v1/chat/completions \\
  -H ${shell(`Authorization: Bearer ${key}`)} -H 'Content-Type: application/json' \\
  -d ${shell(body)}`;
};

const python = (base, key, model) => `from openai import OpenAI

client = OpenAI(base_url=${quoted(`${base}/v1`)}, api_key=${quoted(key)})
stream = client.chat.completions.create(
    model=${quoted(model)}, messages=[{"role": "user", "content": ${quoted(PROMPT)}}], stream=True
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="")`;

const typescript = (base, key, model) => `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${quoted(`${base}/v1`)}, apiKey: ${quoted(key)} });
const stream = await client.chat.completions.create({
  model: ${quoted(model)},
  messages: [{ role: "user", content: ${quoted(PROMPT)} }],
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");`;

export const snippets = {
  curl: { title: "curl", write: curl },
  python: { title: "Python", write: python },
  typescript: { title: "TypeScript", write: typescript },
};
