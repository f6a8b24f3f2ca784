// The YAML file: a draft is checked, tried with recorded traffic, applied, and taken back.
import { html, useRef, useState } from "../html.js";
import { get, path, post, put } from "../api.js";
import { Action, Code, Dialog, Loading, Notice, Time, count, share, useLoaded } from "../parts.js";
import { Pages, Table } from "../table.js";
import { forget, useDraft } from "./policy/draft.js";
import { Editor } from "./policy/editor.js";

const PAGE = 50;

export default function Policy({ session }) {
  const { value: file, error, again } = useLoaded((signal) => get("/admin/config", {}, { signal }), []);
  if (!file) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  return html`<${Notice} error=${error} /><${Draft} key=${file.revision} file=${file} session=${session} again=${again} />
    <h2>History</h2>
    <${History} key=${`history ${file.revision}`} file=${file} again=${again} />`;
}

function Draft({ file, session, again }) {
  const [text, change, old] = useDraft(file, session.name);
  const [result, setResult] = useState({});
  const [asking, setAsking] = useState(false);
  const area = useRef();
  const check = async () => setResult({ check: await post("/admin/config/check", { text }) });
  const replay = async () => setResult({ ...result, replay: await post("/admin/config/replay", { text }) });
  const changed = text !== file.text;
  const setText = (value) => {
    change(value);
    setResult({});
  };
  const applied = () => {
    forget();
    again();
  };
  return html`<${Status} file=${file} />
    ${old && changed && html`<${Notice}>This is your draft of <${Time} at=${old.at / 1000} />.${old.moved ? " The file has changed since: check what the draft would undo." : ""} Discard it to see the file.<//>`}
    <${Editor} area=${area} text=${text} setText=${setText} label=${`Draft of ${file.file}`} />
    <div class="row">
      <${Action} run=${check} class="primary">Check<//>
      ${file.recorded && html`<${Action} run=${replay}>Replay the last hour<//>`}
      <button type="button" disabled=${!changed || !file.editable} onClick=${() => setAsking(true)}>Apply …</button>
      <button type="button" disabled=${!changed} onClick=${() => setText(file.text)}>Discard</button>
    </div>
    ${!file.recorded && html`<p class="dim">No traffic is recorded: the file has no <code>record</code>.</p>`}
    ${asking && html`<${Apply} title="Apply the draft" onClose=${() => setAsking(false)} again=${applied}
      send=${(force) => put(`/admin/config${force ? "?force=true" : ""}`, { text }, match(file))} />`}
    ${result.check && html`<${Checked} check=${result.check} area=${area} text=${text} />`}
    ${result.replay && html`<${Replayed} report=${result.replay} />`}`;
}

const match = (file) => ({ headers: { "if-match": `"${file.revision}"` } });

const Status = ({ file }) => html`
  ${file.last_error && html`<${Notice} kind="bad">The file is not in force: ${file.last_error}<//>`}
  ${!file.editable && html`<${Notice}>${file.why}<//>`}
  <p class="dim">Loaded <${Time} at=${file.loaded} />, revision <code>${file.in_force.slice(0, 12)}</code>.</p>`;

function Apply({ title, onClose, again, send }) {
  const [force, setForce] = useState(false);
  const apply = async () => {
    await send(force);
    onClose();
    again();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>The gateway checks it, replaces the file and reloads it. If the reload is refused, the old file is restored.</p>
    <p><label><input type="checkbox" aria-label="Apply although tests fail" checked=${force} onChange=${(e) => setForce(e.target.checked)} /> Apply although tests fail</label></p>
    <div class="row"><${Action} run=${apply} class="primary">Put in force<//>
      <button type="button" onClick=${onClose}>Cancel</button></div>
  <//>`;
}

function Checked({ check, area, text }) {
  const show = (line) => {
    const lines = text.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.current.focus();
    area.current.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    area.current.scrollTop = (line - 5) * (area.current.scrollHeight / lines.length);
  };
  const list = (problems) => html`<ul>${problems.map((problem, at) => html`<li key=${at}>
    ${problem.line && html`<button type="button" class="small" onClick=${() => show(problem.line)}>Line ${problem.line}</button> `}
    ${problem.path && html`<code>${problem.path}</code> `}${problem.message}
    ${problem.suggestion && html` (did you mean “${problem.suggestion}”?)`}</li>`)}</ul>`;
  return html`<section aria-label="Result of the check">
    <h2>Check</h2>
    ${check.valid
      ? html`<${Notice} kind="good">The draft is valid.<//>`
      : html`<${Notice} kind="bad">The draft has problems.<//>${list(check.problems)}`}
    ${check.warnings.length > 0 && html`<h3>Warnings</h3>${list(check.warnings)}`}
    ${check.tests && html`<h3>Tests of the policy</h3>
      <p>${count(check.tests.passed)} passed, ${count(check.tests.failures.length)} failed (${check.tests.file}).</p>
      ${check.tests.failures.map((failure, at) => html`<${Code} key=${at} text=${failure} label=${`failure ${at + 1}`} />`)}`}
    <h3>Changes</h3>
    ${check.diff === null ? html`<p class="dim">The texts are too long to compare.</p>` : html`<${Diff} text=${check.diff} />`}
  </section>`;
}

const KINDS = { "+": "good", "-": "bad", "@": "dim" };

const Diff = ({ text }) => text === ""
  ? html`<p class="dim">No change.</p>`
  : html`<pre class="code" tabindex="0" aria-label="Changes against the configuration in force">${text.split("\n").map(
      (line, at) => html`<span key=${at} class=${KINDS[line[0]] ?? ""}>${line}${"\n"}</span>`)}</pre>`;

const CHANGES = { changed: "Changed", pool: "Another pool", arm: "Another arm", refused: "Refused now", admitted: "Admitted now", failed: "Another failure" };

function Replayed({ report }) {
  const columns = [
    { title: "Model", cell: (move) => move.model },
    { title: "Change", cell: (move) => move.change },
    { title: "From", cell: (move) => move.from || "–" },
    { title: "To", cell: (move) => move.to || "–" },
    { title: "Requests", number: true, cell: (move) => count(move.requests) },
  ];
  return html`<section aria-label="Result of the replay">
    <h2>Replay</h2>
    <p>${count(report.requests)} recorded requests since <${Time} at=${report.since} />.</p>
    <dl class="numbers">${Object.entries(CHANGES).map(([kind, title]) => html`<div key=${kind}><dt>${title}</dt>
      <dd>${count(report[kind])} <small>${report.requests ? share(report[kind] / report.requests) : ""}</small></dd></div>`)}</dl>
    ${Object.entries(report.spend).map(([currency, spend]) => html`<p key=${currency}>Spend: ${spend.before} → ${spend.after} ${currency}</p>`)}
    <${Table} caption="Most frequent changes" columns=${columns} rows=${report.moves} id=${(move) => JSON.stringify(move)} empty="Nothing changes." />
    ${report.notes.map((note) => html`<p key=${note} class="dim">${note}</p>`)}
  </section>`;
}

function History({ file, again }) {
  const [shown, setShown] = useState(null);
  const [back, setBack] = useState(null);
  const load = async (before, signal) => {
    const { versions } = await get("/admin/config/history", { limit: PAGE, before }, { signal });
    return { rows: versions, next: versions.length === PAGE ? versions.at(-1).version : null };
  };
  const columns = [
    { title: "Version", number: true, cell: (row) => row.version },
    { title: "Time", cell: (row) => html`<${Time} at=${row.at} />` },
    { title: "Cause", cell: (row) => row.cause },
    { title: "Actor", cell: (row) => row.actor },
    { title: "Revision", cell: (row) => html`<code>${row.revision.slice(0, 12)}</code>` },
    { title: "Actions", cell: (row) => html`<button type="button" class="small" onClick=${() => setShown(row)}>Show version ${row.version}</button>
      ${row.revision !== file.revision && file.editable && html` <button type="button" class="small" onClick=${() => setBack(row)}>Return to version ${row.version}</button>`}` },
  ];
  return html`<${Pages} caption="Versions of the configuration" load=${load} columns=${columns} id=${(row) => row.version} />
    ${shown && html`<${Version} row=${shown} onClose=${() => setShown(null)} />`}
    ${back && html`<${Apply} title=${`Return to version ${back.version}`} onClose=${() => setBack(null)} again=${again}
      send=${(force) => post(`${path("admin", "config", "history", back.version, "apply")}${force ? "?force=true" : ""}`, {}, match(file))} />`}`;
}

function Version({ row, onClose }) {
  const { value, error } = useLoaded((signal) => get(path("admin", "config", "history", row.version), {}, { signal }), [row.version]);
  return html`<${Dialog} title=${`Version ${row.version}`} onClose=${onClose}>
    <${Notice} error=${error} />${value && html`<${Code} text=${value.text} label="version" />`}
    <p><button type="button" onClick=${onClose}>Close</button></p>
  <//>`;
}
