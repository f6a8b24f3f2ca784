// What the file may contain at a place in its text, from the file's JSON Schema. The text may be half written.
const MOST = 8;
const MOST_LINES = 5000;

// The schemas that a place may have: references are followed, and alternatives are all tried.
function alternatives(root, schema, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 12) return [];
  if (schema.$ref) return alternatives(root, schema.$ref.split("/").slice(1).reduce((at, part) => at?.[part], root), depth + 1);
  const more = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...more.flatMap((each) => alternatives(root, each, depth + 1))];
}

const below = (root, schemas, part) =>
  schemas.flatMap((schema) => {
    const next = part === ITEM ? schema.items : (schema.properties?.[part] ?? (typeof schema.additionalProperties === "object" ? schema.additionalProperties : null));
    return alternatives(root, next);
  });

const ITEM = Symbol("an item of a list");

// The way from the root of the file to a place: names of fields, and ITEM for an item of a list.
export function wayTo(text, at) {
  const lines = text.slice(0, at).split("\n");
  const current = lines.pop();
  const way = [];
  let indent = widthOf(current);
  let dashes = dashesOf(current);
  const flow = flowOf(current);
  if (flow.length) way.unshift(...flow);
  for (let n = 0; n < dashes.length; n += 1) way.unshift(ITEM);
  for (const line of lines.reverse().slice(0, MOST_LINES)) {
    if (/^\s*(#|$)/.test(line)) continue;
    const width = widthOf(line);
    const items = dashesOf(line);
    const start = items.length ? items[0] : width;
    // A line that begins an item further left holds this one: its dash is an item, and its key is a sibling.
    if (items.length && start < indent && width >= indent && !dashes.length) {
      way.unshift(...items.map(() => ITEM));
      indent = start;
      dashes = items;
      continue;
    }
    const key = /^[\s-]*["']?([\w./-]+)["']?\s*:\s*(#.*|[|>&].*)?$/.exec(line)?.[1];
    const holds = width < indent || (width === indent && dashes.length > 0 && !items.length);
    if (!key || !holds) continue;
    way.unshift(key);
    if (items.length) way.unshift(...items.map(() => ITEM));
    indent = start;
    dashes = items;
    if (indent === 0 && !items.length) break;
  }
  return way;
}

// The column of a line's first key, behind its dashes; and the columns of the dashes.
const widthOf = (line) => /^[\s-]*/.exec(line)[0].length;
const dashesOf = (line) => [.../^[\s-]*/.exec(line)[0]].flatMap((char, column) => (char === "-" ? [column] : []));

// Within braces or brackets of one line: `limits: {requests: ` has the way limits, requests.
function flowOf(line) {
  const open = [];
  let key = null;
  for (const [token] of line.matchAll(/"[^"]*"|'[^']*'|[{}[\],:#]|[\w./*%-]+/g)) {
    if (token === "{" || token === "[") {
      open.push({ key, list: token === "[" });
      key = null;
    } else if (token === "}" || token === "]") {
      open.pop();
      key = null;
    } else if (token === ",") key = null;
    else if (token !== ":") key = token.replace(/["']/g, "");
  }
  return open.flatMap(({ key: name, list }) => [...(name && !/^-+$/.test(name) ? [name] : []), ...(list ? [ITEM] : [])]);
}

// Proposals at a place: {from, word, options: [{text, hint}]}, or null. `wanted`: also without a first letter.
export function complete(schema, text, at, wanted) {
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, at);
  if (/#/.test(line) || /["'$][^"']*$/.test(line)) return null;
  const [, name, word] = /(?:(?:^|[{,\s-])([\w-]+):\s+)?([\w./-]*)$/.exec(line) ?? [];
  const way = wayTo(text, at);
  const here = way.reduce((schemas, part) => below(schema, schemas, part), alternatives(schema, schema));
  const options = name ? values(below(schema, here, name)) : fields(here);
  const fit = [...new Map(options.filter((each) => each.text.startsWith(word) && each.text !== word).map((each) => [each.text, each])).values()];
  if (!fit.length || (!word && !wanted)) return null;
  return { from: at - word.length, word, options: fit.slice(0, MOST) };
}

const firstSentence = (text = "") => text.replace(/``/g, "").split(/(?<=\.)\s/)[0].slice(0, 140);

const fields = (schemas) =>
  schemas.flatMap((schema) => Object.entries(schema.properties ?? {}).map(([text, field]) => ({ text, insert: `${text}: `, hint: firstSentence(field.description) })));

const values = (schemas) =>
  schemas.flatMap((schema) => {
    const known = schema.const === undefined ? (schema.enum ?? (schema.type === "boolean" ? [true, false] : [])) : [schema.const];
    return known.filter((value) => value !== null).map((value) => ({ text: String(value), insert: String(value), hint: "" }));
  });
