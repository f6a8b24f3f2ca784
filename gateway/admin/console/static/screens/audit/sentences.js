// What an entry of the audit log reports, as one sentence. An act without a sentence of its own has its name.
import { html } from "../../html.js";

const name = (text) => html`<b>${text}</b>`;
const tail = (target) => target.slice(target.lastIndexOf("/") + 1);
const head = (target) => target.slice(0, target.lastIndexOf("/"));
const day = (seconds) => (seconds ? `, until ${new Date(seconds * 1000).toISOString().slice(0, 10)}` : "");

const ACTS = {
  "key.create": ({ target, detail }) => html`issued the key ${name(tail(target))} for ${name(head(target))}${detail.label ? html` (${detail.label})` : ""}${detail.role ? `, with the role ${detail.role}` : ""}${day(detail.expires_at)}`,
  "key.revoke": ({ target }) => html`revoked the key ${name(tail(target))} of ${name(head(target))}`,
  "key.block": ({ target }) => html`blocked the key ${name(tail(target))} of ${name(head(target))}`,
  "key.unblock": ({ target }) => html`unblocked the key ${name(tail(target))} of ${name(head(target))}`,
  "key.rotate": ({ target, detail }) => html`replaced the key ${name(tail(target))} of ${name(head(target))} by ${name(detail.replaced_by ?? "another one")}`,
  "key.move": ({ target, detail }) => html`moved the key ${name(tail(target))} of ${name(head(target))} ${detail.team ? html`to the team ${name(detail.team)}` : "out of its team"}`,
  "team.create": ({ target }) => html`added the team ${name(tail(target))} of ${name(head(target))}`,
  "team.change": ({ target }) => html`changed the team ${name(tail(target))} of ${name(head(target))}`,
  "team.remove": ({ target }) => html`removed the team ${name(tail(target))} of ${name(head(target))}`,
  "console.sign_in": () => "signed in to the console",
  "console.sign_out": () => "signed out of the console",
  "console.sign_out_everywhere": () => "signed out of the console everywhere",
  "gateway.start": ({ target }) => html`started with the file ${name(target)}`,
  "config.reload": ({ target }) => html`loaded the file ${name(target)}`,
  "config.apply": ({ target }) => html`applied a draft to the file ${name(target)}`,
  "batch.cancel": ({ target }) => html`cancelled the batch ${name(target)}`,
  "budget.alert": ({ target }) => html`reported a budget of ${name(target)}`,
  "config.return": ({ target, detail }) => html`put version ${detail.version} of the file ${name(target)} in force again`,
  "content.view": ({ target }) => html`read the recorded content of the request ${name(target)}`,
  "playground.call": ({ target }) => html`sent a request of the playground as ${name(target)}`,
  "gateway.drain": () => "began to drain",
  "gateway.stop": () => "stopped",
  "pepper.replaced": () => "replaced the pepper",
};
const TRIED = { refused: "tried, and was refused: ", failed: "tried, and it failed: " };

function act(entry) {
  const detail = entry.detail ?? {};
  const of = ACTS[entry.action];
  const [kind, verb] = entry.action.split(".");
  if (["rollout", "experiment", "shadow"].includes(kind) && verb)
    return html`set the ${kind} ${name(entry.target)} to “${verb}”${detail.reason ? `: ${detail.reason}` : ""}`;
  if (of) return of({ target: entry.target ?? "", detail });
  return html`${entry.action}${entry.target ? html` ${name(entry.target)}` : ""}${detail.reason ? `: ${detail.reason}` : ""}`;
}

export const sentence = (entry) => html`${name(entry.actor)} ${TRIED[entry.outcome] ?? ""}${act(entry)}.`;
