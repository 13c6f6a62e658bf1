// One session: where it is and why, its course, its state at any checkpoint, and what a verb would do before it is done.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of, Problem } from './api.js';
import { at, bar, status } from './shapes.js';
import { counted, later, money, number, time } from './words.js';
import { course } from './course.js';
import { cost } from './cost.js';
import { question } from './inbox.js';
import * as state from './state.js';
import * as history from './history.js';
import * as output from './output.js';
import * as artifacts from './artifacts.js';
import * as files from './files.js';
import * as verbs from './verbs.js';

const PAGE = 200;
const AT_ONCE = 200, SOON = 3000, LATER = 10_000;  // milliseconds until the session is read again after a change

const children = {
  load: async (d) => ({ children: (await get(of(d.s.session_id) + '/children')).sessions }),
  view: (d) => d.children.length ? html`<ul>${repeat(d.children.slice(0, PAGE), (s) => s.session_id, child)}</ul>${d.children.length > PAGE ?
    html`<p class="small dim pad">${counted(d.children.length - PAGE, 'more child', 'more children')}.</p>` : nothing}` :
      html`<p class="empty"><b>It has no children</b>A step starts another session with <code>ctx.call</code>.</p>`,
};
const child = (s) => html`<li><a class="item" href="#/sessions/${encodeURIComponent(s.session_id)}" data-row><span
  class="name mono clip">${s.session_id}</span>${status(s.status)}<span
    class="sub clip">${s.workflow} · ${at(s) || 'ended'} · ${money(s.spent_usd)}</span></a></li>`;

const TABS = { state, history, output, artifacts, files, children, cost: { view: cost } };

// loading

export const title = ({ path }) => path[1];
export const topics = ({ path }, { gone }) => gone ? [] : [`session:${path[1]}`];

let kept = {};  // what changes only with the session's mark

async function visits(s, before) {
  const base = of(s.session_id), mark = `${s.session_id} ${s.etag} ${before}`;
  if (kept.mark === mark) return kept;
  const [{ spans }, { checkpoints }, plan] = await Promise.all([
    get(base + '/spans', { before, limit: PAGE }), get(base + '/checkpoints', { before, limit: PAGE }),
    get(base + '/plan').catch((problem) => { if (problem.status === 409 || problem.status === 422) return problem; throw problem; }),
  ]);
  return kept = { mark, spans, points: checkpoints.filter((each) => !each.redacted), plan: plan instanceof Problem ? null : plan, planRefused:
    plan instanceof Problem ? plan.message : '' };
}

export async function load({ path, query }, page) {
  let s;
  try {
    s = await get(of(path[1]));
  } catch (problem) {
    if (problem.tombstone) return { gone: problem.tombstone };
    throw problem;
  }
  if (!page.may('viewer')) return { s };
  const before = query.get('before') ?? '', tab = TABS[query.get('tab')] ? query.get('tab') : 'state';
  const d = { s, tab, before, query, ...await visits(s, before) };
  d.earlier = d.spans.filter((each) => each.seq).length >= PAGE;
  d.to = (changes) => address(path[1], page.route.query, changes);
  d.end = () => ['running', 'pausing', 'waiting', 'sleeping'].includes(d.s.status) && !before ? Date.now() : Date.parse(d.s.updated_at);
  return Object.assign(d, await TABS[tab].load?.(d, page));
}

function address(id, query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) value === '' ? next.delete(name) : next.set(name, value);
  const text = next.toString();
  return `#/sessions/${encodeURIComponent(id)}${text ? '?' + text : ''}`;
}

// The head, the history and the output are drawn as they come. The rest is read again after a while.
export function live(name, data, page) {
  const s = page.data?.s;
  const isOurs = data.session_id === s?.session_id;
  if (page.data?.gone && name !== 'reset') return true;
  if (name === 'reset') history.forget();
  if (!s || name === 'reset' || (isOurs && data.removed)) return false;
  if (isOurs && name === 'line') history.heard(data.events);
  if (isOurs && name === 'token') return output.heard(data);
  const wait = !isOurs ? LATER : name === 'head' && data.status !== s.status ? AT_ONCE : SOON;
  if (isOurs && name === 'head') Object.assign(s, data);
  readAgain(page, wait);
  return true;
}

let due = null, dueAt = 0;
function readAgain(page, wait) {
  if (due && dueAt <= Date.now() + wait) return;
  clearTimeout(due);
  dueAt = Date.now() + wait;
  due = setTimeout(() => { due = null; if (!document.hidden) page.load(); }, wait);
}

// the head

const link = (id) => html`<a class="mono" href="#/sessions/${encodeURIComponent(id)}">${id}</a>`;

const crumb = ({ parent_id, origin }, page) => html`<div class="crumb">${page.may('viewer') ? html`<a href="#/sessions">Sessions</a>` :
  html`<a href="#/inbox">Inbox</a>`}${parent_id ? html` / child of ${link(parent_id)}` : nothing}${origin ?
    html` / fork of ${link(origin.session_id)} at record ${origin.seq}` : nothing}</div>`;

function spent(s) {
  const parts = [s.budget_usd != null || s.spent_usd ? html`<b class="num">${s.spent_usd ? money(s.spent_usd) : '$0'}</b>${s.budget_usd != null ?
    ` of $${s.budget_usd.toFixed(2)}` : ''}` : '', s.spent_tokens ? `${number(s.spent_tokens)} tokens` : ''];
  return parts.some(Boolean) ? html`<span>spent ${parts[0]}${parts[0] && parts[1] ? ' · ' : ''}${parts[1]}</span>` : nothing;
}

function meta(s) {
  return html`<div class="meta"><span><b>${s.workflow}</b> v${s.version}${s.guest ? ' (guest)' : ''}</span>
    ${s.step ? html`<span>at <b class="mono">${at(s)}</b>${s.progress ?
      html` <span class="num">${number(s.progress.done)} of ${number(s.progress.total)}</span>` : nothing}</span>` : nothing}
    ${s.owner ? html`<span>owner <a href="#/sessions?owner=${encodeURIComponent(s.owner)}"><b>${s.owner}</b></a></span>` : nothing}
    <span>created <b>${time(s.created_at)}</b></span><span>changed <b>${time(s.updated_at)}</b></span>${spent(s)}
    ${s.holder ? html`<span class="clip" title=${s.holder}>driven by ${s.holder.split(',')[0]}</span>` : nothing}
    ${s.tags.map((tag) => html`<a class="tag" href="#/sessions?tag=${encodeURIComponent(tag)}">${tag}</a>`)}</div>${bar(s.progress)}`;
}

function head(d, page) {
  const { s } = d;
  return html`${crumb(s, page)}<div class="top"><div><div class="row"><h1
    class="mono">${s.session_id}</h1>${status(s.status, true)}</div>${meta(s)}</div>${page.may('operator') ? verbs.buttons(d, page) : nothing}</div>`;
}

export const keys = { p: (page) => page.data.s && page.may('operator') && verbs.can(page.data.s).pause && verbs.pause(page.data, page) };

// why it is not running: keyed, because a pause that comes first must not change what is typed below it

// The engine's frames are the same in every traceback; a reader looks for those of the step.
function frames(traceback) {
  const all = traceback.split(/\n(?=  File )/), isEngine = (frame) => /^  File ".*[/\\]pausepoint[/\\](runtime|engine|threads|drivers)/.test(frame);
  return { own: all.filter((frame) => !isEngine(frame)).join('\n'), hidden: all.filter(isEngine).length };
}

function failure({ type, message, step, attempts, traceback }) {
  const { own, hidden } = frames(traceback);
  return html`<div class="item"><span><span class="st failed">${type}</span> <span class="name">${message}</span></span><span
    class="dim small">${step}, ${counted(attempts, 'attempt')}</span></div>
    ${traceback ? html`<pre class="trace" tabindex="0" role="region" aria-label="Traceback">${own}</pre>` : nothing}
    ${hidden ? html`<details class="known pad"><summary>The whole traceback, with ${counted(hidden, 'frame')} of the engine</summary><pre class="mono"
      tabindex="0">${traceback}</pre></details>` : nothing}`;
}

const pauseLine = (p) => html`<div class="item"><span><span class="st paused">${p.standing ? 'everything is paused' : p.kind}</span> <span
  class="name">${p.reason || 'no reason given'}</span></span><span class="dim small">${p.by ? `by ${p.by}, ` : ''}${time(p.created_at)}</span>
  ${p.standing ? html`<span class="sub">Lift the pause of everything on <a href="#/">Now</a>.</span>` : p.freeze ?
    html`<span class="sub">Timers are frozen.</span>` : nothing}</div>`;

const plainLine = (name, act) => html`<div class="item"><span class="name">${name}</span>${act ?? nothing}</div>`;

function waits(d, page) {
  const { s } = d, mayAct = page.may('operator');
  const found = [
    s.wakes_at && !s.waiting.includes('answer') && !['running', 'pausing'].includes(s.status) ?
      plainLine(html`Wakes ${later(s.wakes_at)}`, mayAct && s.status === 'sleeping' ?
        html`<button class="b tiny" @click=${() => verbs.resume(d, page, true)}>Wake now…</button>` : nothing) : nothing,
    s.waiting.includes('message') ? plainLine('Waits for a message', page.may('answerer') ?
      html`<button class="b tiny" @click=${() => verbs.send(d, page)}>Send a message…</button>` : nothing) : nothing,
    s.waiting.includes('child') ? plainLine('Waits for its children', html`<a class="b tiny" href=${d.to?.({ tab: 'children' }) ?? '#'}>Children</a>`) :
      nothing,
    s.cancel_requested && s.status !== 'cancelled' ? plainLine('Will be cancelled at the next safe point') : nothing,
    ['ready', 'created'].includes(s.status) ? plainLine(driven(s, page)) : nothing,
    s.guest && !['completed', 'cancelled', 'running'].includes(s.status) ? plainLine('A guest: its own program runs it, with its next visit.') : nothing,
  ];
  return found.map((each, n) => [n, each]).filter(([, each]) => each !== nothing);
}

function driven(s, page) {
  if (s.guest) return 'Ready.';
  const engines = page.now?.engines;
  const isDriven = !engines || engines.some((each) => !each.workflows || each.workflows.includes(s.workflow));
  if (isDriven) return 'Ready. An engine that drives its workflow picks it up.';
  return `Ready, but no engine drives ${s.workflow}. Start one with pausepoint worker.`;
}

function why(d, page) {
  const { s } = d, found = [
    ...(s.pauses ?? []).map((each) => [`${each.kind} ${each.created_at}`, pauseLine(each)]), ...(s.failure ? [['failure', failure(s.failure)]] : []),
    ...(s.questions ?? []).map((each) => [each.id, question(each, page)]), ...waits(d, page),
  ];
  return found.length ? html`<section class="sheet" aria-label="Why it is not running">${repeat(found, ([key]) => key, ([, each]) => each)}</section>` :
    nothing;
}

// tabs

const TITLES = { state: 'State', history: 'History', output: 'Output', artifacts: 'Artifacts', files: 'Files', children: 'Children', cost: 'Cost' };

function choose(name, d, page) {
  page.go(d.to({ tab: name }), true);
  page.draw();  // the chosen tab at once, and its content when it is loaded
  document.querySelector('[role=tab][aria-selected=true]').scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

function moved(event, d, page) {
  const names = Object.keys(TABS), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  choose(names.at((names.indexOf(event.target.id.slice(4)) + step) % names.length), d, page);
  document.querySelector('[role=tab][aria-selected=true]').focus();
}

function tabs(d, page) {
  const shown = page.route.query.get('tab') ?? 'state';
  return html`<section class="sheet" aria-label="Details"><div class="tabs" role="tablist" aria-label="Details"
    @keydown=${(event) => moved(event, d, page)}>${Object.keys(TABS).map((name) =>
      html`<button role="tab" id="tab-${name}" aria-controls="panel" aria-selected=${shown === name} tabindex=${shown === name ? 0 : -1}
        @click=${() => choose(name, d, page)}>${TITLES[name]}</button>`)}</div>
    <div id="panel" role="tabpanel" aria-labelledby="tab-${d.tab}">${TABS[d.tab].view(d, page)}</div></section>`;
}

const gone = (stone) => html`<div class="top"><div><div class="row"><h1 class="mono">${stone.session_id}</h1></div><p
  class="dim">${stone.workflow}, created ${time(stone.created_at)}</p></div></div>
  <div class="note" role="status"><p>${stone.by ?? 'Someone'} removed this session ${time(stone.removed_at)}${stone.reason ? html`: “${stone.reason}”` :
    '.'} It was ${stone.status}. Its history is deleted.</p></div><p class="back"><a class="b" href="#/sessions">All sessions</a></p>`;

export function view(d, page) {
  if (d.gone) return gone(d.gone);
  return html`${head(d, page)}<div class="stack">${why(d, page)}${d.spans ? html`${course(d, page)}${tabs(d, page)}` :
    html`<p class="dim">Your role sees only these facts of the session. Its questions are in the <a href="#/inbox">inbox</a>.</p>`}</div>`;
}
