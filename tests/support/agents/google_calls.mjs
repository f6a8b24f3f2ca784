// Calls of @google/genai, whose results are printed as JSON. Arguments: the model; `chats`, `all` or `caches`; `gemini`,
// `vertex` or `express`.
import { GoogleGenAI, FunctionCallingConfigMode } from "@google/genai";

const [model, kind, cloud] = process.argv.slice(2);
const { HEADRACE_URL: baseUrl, HEADRACE_KEY: apiKey } = process.env;
const place = { project: process.env.HEADRACE_PROJECT, location: process.env.HEADRACE_LOCATION };
// Without an account of Google, the token is a header of one's own.
const clients = {
  gemini: () => new GoogleGenAI({ apiKey, httpOptions: { baseUrl } }),
  express: () => new GoogleGenAI({ vertexai: true, apiKey, httpOptions: { baseUrl } }),
  vertex: () =>
    new GoogleGenAI({
      vertexai: true,
      ...place,
      httpOptions: { baseUrl },
      googleAuthOptions: { authClient: { getRequestHeaders: async () => new Headers({ authorization: `Bearer ${apiKey}` }) } },
    }),
};
const { models, caches } = clients[cloud]();
const schema = { type: "object", properties: { n: { type: "integer" } } };
const picture = { inlineData: { mimeType: "image/png", data: "iVBORw0KGgo=" } };

async function looped() {
  const functionDeclarations = ["weather", "time"].map((name) => ({ name, parametersJsonSchema: schema }));
  const config = { tools: [{ functionDeclarations }], thinkingConfig: { includeThoughts: true }, maxOutputTokens: 4096 };
  const contents = [{ role: "user", parts: [picture, { text: "please call" }] }];
  const names = [];
  for (let turn = 0; turn < 2; turn++) {
    const answer = await models.generateContent({ model, contents, config });
    const calls = answer.functionCalls ?? [];
    names.push(calls.map((call) => call.name));
    const parts = calls.map(({ id, name }) => ({ functionResponse: { id, name, response: { output: name } } }));
    contents.push(answer.candidates[0].content, { role: "user", parts }, { role: "user", parts: [{ text: "call again" }] });
  }
  return names;
}

async function failure(contents) {
  try {
    await models.generateContent({ model, contents });
  } catch (error) {
    return [error.status, JSON.parse(error.message).error.status];
  }
  return [];
}

async function cached() {
  const cache = await caches.create({ model, config: { systemInstruction: "words ".repeat(3000), ttl: "300s" } });
  const request = { model, contents: "hi there", config: { cachedContent: cache.name } };
  const answer = await models.generateContent(request);
  const longer = await caches.update({ name: cache.name, config: { ttl: "3600s" } });
  const got = await caches.get({ name: cache.name });
  await caches.delete({ name: cache.name });
  let lost = 0;
  try {
    await models.generateContent(request);
  } catch (error) {
    lost = error.status;
  }
  return {
    tokens: [cache.usageMetadata.totalTokenCount, answer.usageMetadata.cachedContentTokenCount],
    text: answer.text,
    longer: longer.expireTime > cache.expireTime,
    same: got.name === cache.name,
    lost,
  };
}

if (kind === "caches") {
  console.log(JSON.stringify(await cached()));
  process.exit();
}
const whole = await models.generateContent({ model, contents: "hi there" });
let stream = "";
for await (const chunk of await models.generateContentStream({ model, contents: "a b c" })) stream += chunk.text ?? "";
const printed = {
  text: whole.text,
  finish: whole.candidates[0].finishReason,
  counts: whole.usageMetadata.totalTokenCount > 0,
  stream,
  calls: await looped(),
  count: (await models.countTokens({ model, contents: "hi there" })).totalTokens > 0,
};
if (kind === "all") {
  const embedded = await models.embedContent({ model, contents: ["a", "bb"], config: { outputDimensionality: 2 } });
  printed.vectors = embedded.embeddings.map((each) => each.values);
  const config = { responseMimeType: "application/json", responseJsonSchema: schema };
  printed.schema = JSON.parse((await models.generateContent({ model, contents: "hi", config })).text);
  printed.long = await failure("!long");
  printed.quota = await failure("!quota"); // last: a server with a used quota rests for a while
}
console.log(JSON.stringify(printed));
