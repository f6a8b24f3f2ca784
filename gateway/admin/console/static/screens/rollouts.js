// Rollouts and experiments with their evidence over time, and shadows with their verdicts.
import { html, useEffect, useMemo, useState } from "../html.js";
import { get, path, post } from "../api.js";
import { Action, Badge, Dialog, Loading, Notice, count, seconds, share, useLoaded } from "../parts.js";
import { Table } from "../table.js";
import { Chart } from "../chart.js";

const PERIOD = 5000;

const useFresh = (load, keys) => {
  const state = useLoaded(load, keys);
  useEffect(() => {
    const timer = setInterval(state.again, PERIOD);
    return () => clearInterval(timer);
  }, keys);
  return state;
};

export default function Rollouts() {
  const { value, error, again } = useFresh(async (signal) => {
    const [{ rollouts }, { experiments }, { shadows }] = await Promise.all(
      ["rollouts", "experiments", "shadows"].map((kind) => get(`/admin/${kind}`, {}, { signal })),
    );
    return { rollouts, experiments, shadows };
  }, []);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  return html`<${Notice} error=${error} />
    <h2>Rollouts</h2>
    ${value.rollouts.map((view) => html`<${Rollout} key=${view.name} view=${view} again=${again} />`)}
    ${value.rollouts.length === 0 && html`<p class="dim">The file has no rollout.</p>`}
    <h2>Experiments</h2>
    ${value.experiments.map((view) => html`<${Experiment} key=${view.name} view=${view} again=${again} />`)}
    ${value.experiments.length === 0 && html`<p class="dim">The file has no experiment.</p>`}
    <h2>Shadows</h2>
    <${Shadows} rows=${value.shadows} />`;
}

// An order that changes where requests go is confirmed first.
function Orders({ kind, view, verbs, again }) {
  const [verb, setVerb] = useState(null);
  const order = async () => {
    await post(path("admin", kind, view.name, verb));
    setVerb(null);
    again();
  };
  return html`<div class="row">${Object.entries(verbs).map(([each, { title }]) =>
      html`<button key=${each} type="button" class=${each === "back" || each === "stop" ? "danger" : ""} onClick=${() => setVerb(each)}>${title} ${view.name}</button>`)}</div>
    ${verb && html`<${Dialog} title=${`${verbs[verb].title} ${view.name}?`} onClose=${() => setVerb(null)}>
      <p>${verbs[verb].text}</p>
      <div class="row"><${Action} run=${order} class="primary">Confirm<//><button type="button" onClick=${() => setVerb(null)}>Cancel</button></div>
    <//>`}`;
}

const ROLLOUT_VERBS = {
  pause: { title: "Pause", text: "The weight stays as it is until an operator continues the rollout." },
  on: { title: "Continue", text: "The rollout moves on: from a pause, or to its next step." },
  back: { title: "Take back", text: "All requests go to the old arm at once." },
};
const EXPERIMENT_VERBS = {
  pause: { title: "Pause", text: "The shares stay as they are." },
  on: { title: "Continue", text: "The experiment continues." },
  stop: { title: "Stop", text: "The experiment ends without a decision." },
};
const KINDS = { running: "good", done: "good", decided: "good", back: "bad", held: "warn", stopped: "warn" };

const useSeries = (kind, name) =>
  useFresh((signal) => get(path("admin", kind, name, "series"), {}, { signal }), [kind, name]).value?.points ?? [];

const conditionsOf = (view) => [
  ...(view.back_if ?? []).map((each) => ({ ...each, kind: "Back if" })),
  ...(view.on_if ?? []).map((each) => ({ ...each, kind: "On if" })),
];

const interval = ([low, high]) => `${count(low)} to ${high > 1e200 ? "∞" : count(high)}`;

function Rollout({ view, again }) {
  const points = useSeries("rollouts", view.name);
  const columns = [
    { title: "Condition", cell: (row) => `${row.kind}: ${row.event}` },
    { title: "Events, old arm", number: true, cell: (row) => count(row.events.from) },
    { title: "Events, new arm", number: true, cell: (row) => count(row.events.to) },
    { title: "Ratio, interval", number: true, cell: (row) => interval(row.ratio) },
    { title: "E-value", number: true, cell: (row) => (row.e_value === null ? "–" : count(row.e_value)) },
    { title: "Needed", number: true, cell: (row) => count(row.needed) },
  ];
  return html`<article class="card" aria-label=${view.name}>
    <h3>${view.name} <${Badge} kind=${KINDS[view.status] ?? ""}>${view.status}<//></h3>
    ${view.reason && html`<p>${view.reason}</p>`}
    ${view.steps && html`<p class="next">${next(view)}</p>`}
    ${view.steps && html`<p>From ${view.from} to ${view.to}: weight ${share(view.weight)}, step ${view.step + 1} of ${view.steps.length}.
      Requests: ${count(view.requests.from)} and ${count(view.requests.to)}.</p>
      <${Evidence} points=${points} view=${view} />
      <${Table} caption=${`Conditions of ${view.name}`} columns=${columns} rows=${conditionsOf(view)} id=${(row) => `${row.kind} ${row.event}`} />
      <${Orders} kind="rollouts" view=${view} verbs=${ROLLOUT_VERBS} again=${again} />`}
  </article>`;
}

// What happens next, in one sentence.
function next(view) {
  const last = view.step + 1 >= view.steps.length;
  const target = last ? `all requests go to ${view.to}` : `${view.to} receives ${share(view.steps[view.step + 1].weight)}`;
  const alarms = (view.back_if ?? []).filter((each) => each.e_value !== null && each.needed > 0);
  const nearest = alarms.reduce((least, each) => (least && ratio(least) >= ratio(each) ? least : each), null);
  const doubt = nearest && ratio(nearest) > 0.5 ? ` The evidence for the way back (${nearest.event}) is at ${share(ratio(nearest))} of what it needs.` : "";
  if (view.status === "done") return `All requests go to ${view.to}.${view.back_for_seconds > 0 ? ` It can still be taken back for ${duration(view.back_for_seconds)}.` : ""}`;
  if (view.status === "back") return `All requests go to ${view.from}.`;
  if (view.status === "held") return `It is paused at ${share(view.weight)}: continue it, and the steps go on.${doubt}`;
  if (view.status !== "running") return "";
  if (!view.counting) return `The servers of ${view.to} still warm up: the time of this step has not begun.`;
  const left = view.steps[view.step].for_seconds - view.elapsed_seconds;
  if (left <= 0) return `The time of this step is over: ${target} after enough requests and evidence.${doubt}`;
  return `${duration(left)} more at ${share(view.weight)}, then ${target}, if nothing speaks against it.${doubt}`;
}

// Evidence is a product: its logarithm grows evenly.
const ratio = (each) => Math.max(0, Math.min(1, Math.log(Math.max(each.e_value, 1)) / Math.log(Math.max(each.needed, 1.0001))));

function duration(value) {
  const plural = (amount, unit) => `${count(amount)} ${unit}${amount === 1 ? "" : "s"}`;
  if (value < 90) return plural(Math.ceil(value), "second");
  return value < 5400 ? plural(Math.round(value / 60), "minute") : plural(Math.round(value / 360) / 10, "hour");
}

// A logarithmic axis has no zero.
const positive = (value) => (value > 0 ? Math.min(value, 1e12) : null);

const Titled = ({ title, times, series, log, ...rest }) => html`<figure>
  <figcaption>${title}</figcaption><${Chart} label=${`${title}; the table below has the latest values`} x=${times} series=${series} log=${log} ...${rest} />
</figure>`;

function Evidence({ points, view }) {
  const { times, weights, evidence, ratios } = useMemo(() => {
    const events = [...new Set(points.flatMap((point) => point.conditions.filter((c) => c.kind === "back_if").map((c) => c.event)))];
    const of = (point, event) => point.conditions.find((c) => c.kind === "back_if" && c.event === event);
    return {
      times: points.map((point) => point.at),
      weights: [{ label: "Weight", values: points.map((point) => point.weight) }],
      evidence: [
        ...events.map((event) => ({ label: event, values: points.map((point) => positive(of(point, event)?.e_value)) })),
        { label: "needed", dash: [6, 4], values: points.map(() => positive(view.back_if?.[0]?.needed)) },
      ],
      ratios: events.flatMap((event) => [0, 1].map((end) => ({
        label: `${event}, ${end ? "upper" : "lower"}`, dash: end ? [4, 4] : undefined,
        values: points.map((point) => { const value = of(point, event)?.ratio[end] ?? null; return value > 1e6 ? null : value; }),
      }))),
    };
  }, [points, view.name]);
  if (!points.length) return html`<p class="dim">No point of the time series yet.</p>`;
  return html`<div class="cards wide">
    <${Titled} title="Weight of the new arm" times=${times} series=${weights} format=${share} ticks=${share} />
    ${evidence.length > 1 && html`<${Titled} title="E-values of the conditions for the way back" times=${times} series=${evidence} log=${true} />`}
    ${ratios.length > 0 && html`<${Titled} title="Intervals of the ratio of the events" times=${times} series=${ratios} />`}
  </div>`;
}

function Experiment({ view, again }) {
  const points = useSeries("experiments", view.name);
  const metric = view.metrics?.[view.metric];
  const rows = (view.arms ?? []).map((arm, at) => ({ ...arm, ...metric?.arms[at] }));
  const columns = [
    { title: "Arm", cell: (row) => row.name },
    { title: "Share", number: true, cell: (row) => share(row.share) },
    { title: "Assigned", number: true, cell: (row) => count(row.assigned) },
    { title: "Samples", number: true, cell: (row) => count(row.samples) },
    { title: "Mean", number: true, cell: (row) => count(row.mean) },
    { title: "Effect", number: true, cell: (row) => count(row.effect) },
    { title: "Interval", number: true, cell: (row) => (row.interval ? interval(row.interval) : "–") },
    { title: "E-value, better", number: true, cell: (row) => count(row.e_value?.better) },
    { title: "E-value, worse", number: true, cell: (row) => count(row.e_value?.worse) },
  ];
  const { times, shares, effects } = useMemo(() => {
    const names = (view.arms ?? []).map((arm) => arm.name);
    return {
      times: points.map((point) => point.at),
      shares: names.map((label, at) => ({ label, values: points.map((point) => point.arms[at]?.share ?? null) })),
      effects: names.slice(1).flatMap((label, at) => [0, 1].map((end) => ({
        label: `${label}, ${end ? "upper" : "lower"}`, dash: end ? [4, 4] : undefined,
        values: points.map((point) => point.arms[at + 1]?.interval?.[end] ?? null),
      }))),
    };
  }, [points, view.name]);
  return html`<article class="card" aria-label=${view.name}>
    <h3>${view.name} <${Badge} kind=${KINDS[view.status] ?? ""}>${view.status}<//></h3>
    ${view.reason && html`<p>${view.reason}</p>`}
    ${view.arms && html`<p>${view.metric}: ${view.winner ? `${view.winner} wins` : "no winner yet"}, after ${seconds(view.elapsed_seconds)}.</p>
      ${points.length > 0 && html`<div class="cards wide"><${Titled} title="Shares of the arms" times=${times} series=${shares} />
        ${effects.length > 0 && html`<${Titled} title="Intervals of the effects" times=${times} series=${effects} />`}</div>`}
      <${Table} caption=${`Arms of ${view.name}`} columns=${columns} rows=${rows} id=${(row) => row.name} />
      <${Orders} kind="experiments" view=${view} verbs=${EXPERIMENT_VERBS} again=${again} />`}
  </article>`;
}

const VERDICTS = { agrees: "good", differs: "bad" };

const Shadows = ({ rows }) => html`<${Table} caption="Shadows" empty="The file has no shadow." rows=${rows} id=${(row) => row.name} columns=${[
  { title: "Shadow", cell: (row) => row.name },
  { title: "Model", cell: (row) => row.model },
  { title: "To", cell: (row) => row.to },
  { title: "Verdict", cell: (row) => html`<${Badge} kind=${VERDICTS[row.verdict] ?? ""}>${row.verdict}<//>` },
  { title: "Compared", number: true, cell: (row) => count(row.compared) },
  { title: "Differing", number: true, cell: (row) => count(row.differing) },
  { title: "Excess, interval", number: true, cell: (row) => `${share(row.excess[0])} to ${share(row.excess[1])}` },
  { title: "E-value", number: true, cell: (row) => count(row.e_value) },
  { title: "Needed", number: true, cell: (row) => count(row.needed) },
]} />`;
