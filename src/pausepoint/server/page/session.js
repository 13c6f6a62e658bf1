// One session: where it is and why, its course, its state at any checkpoint, and what a verb would do before it is done.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of } from './api.js';
import { at, bar, item, more, ROWS, status } from './shapes.js';
import { capital, counted, later, money, number, spent, sum, time } from './words.js';
import { course } from './course.js';
import { cost } from './cost.js';
import { overview } from './overview.js';
import { question } from './inbox.js';
import * as state from './state.js';
import * as history from './history.js';
import * as operations from './operations.js';
import * as conversation from './conversation.js';
import * as output from './output.js';
import * as artifacts from './artifacts.js';
import * as files from './files.js';
import { ask, buttons, can } from './verbs.js';

const SOON = 3000;  // milliseconds until the session is read again after a change

const href = (id) => '#' + of(id);
const link = (id) => html`<a class="mono" href=${href(id)}>${id}</a>`;

const child = (s) => html`<li>${item(html`<a class="mono" href=${href(s.session_id)} data-row>${s.session_id}</a>`, status(s.status),
  `${s.workflow} · ${at(s) || 'ended'} · ${money(s.spent_usd)}`)}</li>`;
const children = {
  load: async ({ s }) => ({ children: (await get(of(s.session_id) + '/children')).sessions }),
  view: ({ children: found }) => found.length ? html`<ul>${repeat(found.slice(0, ROWS), (s) => s.session_id, child)}</ul>${more(found)}` :
    html`<p class="empty"><b>It has no children</b>A step starts another session with <code>ctx.call</code>.</p>`,
};

const TABS = { state, conversation, operations, history, output, artifacts, files, children, cost: { view: cost } };

export const title = ({ path }) => path[1];
export const topics = ({ path }) => [`session:${path[1]}`];

let kept = {}, sums = {}, due = null;  // what changes only with the session's mark; its totals; the next reading

// Read a page of visits: the last ones, those before a record, or those from a visit on. If that visit does not exist, `missed` says so.
async function paged(base, before, from) {
  const read = (query) => get(base + '/spans', { ...query, limit: ROWS });
  if (!from) return { spans: (await read({ before })).spans };
  try {
    const { spans } = await read({ at: from }), last = spans.findLast((each) => each.seq)?.seq;
    return { spans, until: last && last + 1 };
  } catch (problem) {
    if (problem.status !== 404 && problem.status !== 400) throw problem;
    return { ...await paged(base), missed: problem.message };
  }
}

// Adding up costs as much as the session is long, so it takes at most a twentieth of the time.
async function added(base, mark, before) {
  const key = `${base} ${mark} ${before}`;
  if (sums.key === key && Date.now() < sums.until) return sums.found;
  const began = Date.now(), found = await get(base + '/totals', { before });
  sums = { key, found, until: Date.now() + 20 * (Date.now() - began) };
  return found;
}

async function visits({ session_id, etag, status: word }, before, from) {
  const base = of(session_id), mark = `${session_id} ${etag} ${before} ${from}`;
  if (kept.mark === mark) return kept;
  const planned = get(base + '/plan').then((found) => ({ plan: found }), (problem) => ({ planRefused: problem.message }));
  const { spans, until, missed } = await paged(base, before, from);
  const ended = spans.filter((each) => each.seq), isPage = before || (from && !missed), isLong = isPage || ended.length >= ROWS || spans.some((each) => each.part_count > each.parts.length);
  const [{ checkpoints }, totals] = await Promise.all([get(base + '/checkpoints', { before: until ?? before, limit: ROWS }),
    isLong && added(base, word, isPage && ended[0] ? ended[0].seq : '')]);
  const found = totals ? { totals, page: pageOf(totals, ended, isPage) } : {};
  // a visit that is only about to begin, after a rewind, is left out
  const begun = spans.filter((each) => each.ended_at || each.parts[0] || each.failed[0] || !/ready|paused/.test(word));
  return kept = { mark, spans: begun, missed, points: checkpoints.filter((each) => !each.redacted), ...found, ...await planned };
}

// Where a page of visits is among all of them, also those that a rewind has undone.
function pageOf({ steps, earlier }, ended, isPage) {
  const all = Math.max(sum(steps, 'count') + sum(steps, 'undone'), ended.length), before = isPage ? earlier : all - ended.length;
  return { all, first: before + 1, last: before + ended.length, isPage };
}

export async function load({ path, query }, page) {
  const s = await get(of(path[1]));
  if (!page.may('viewer')) return { s };
  const before = query.get('before') ?? '', from = query.get('from') ?? '', tab = query.get('tab') in TABS ? query.get('tab') : 'state';
  const d = { s, tab, before, query, ...await visits(s, before, from) };
  d.before ||= d.page && d.page.last < d.page.all;  // the present state is not on this page
  d.to = (changes) => `${href(path[1])}?${new URLSearchParams({ ...Object.fromEntries(page.route.query), ...changes })}`;
  d.now = () => ['running', 'pausing', 'waiting', 'sleeping'].includes(d.s.status) ? Date.now() : Date.parse(d.s.updated_at);
  d.end = () => d.page && d.page.last < d.page.all ? Date.parse(d.s.updated_at) : d.now();
  return Object.assign(d, await TABS[tab].load?.(d, page));
}

// Head, history and output are drawn as they come, and the rest is read again soon; at once (false) if the status is new.
export function live(name, data, page) {
  const s = page.data?.s, isOurs = data.session_id === s?.session_id;
  if (name === 'reset') history.forget();
  if (!s || name === 'reset' || (isOurs && (data.removed || (data.status ?? s.status) !== s.status))) return false;
  if (isOurs && name === 'token') return output.heard(data);
  if (isOurs && name === 'line') history.heard(data.events);
  if (isOurs && name === 'head') Object.assign(s, data);
  due ??= setTimeout(() => { due = null; page.refresh(); }, SOON);
  return true;
}

const meta = (s) => [
  html`<b>${s.workflow}</b> v${s.version}${s.guest ? ' (guest)' : ''}`,
  (at(s) || s.progress) && html`${at(s) && html`${s.held_by_guard ? '' : 'at '}<b class="mono">${at(s)}</b>`}${s.progress ? ` ${number(s.progress.done)} of ${number(s.progress.total)}` : ''}`,
  s.queue !== 'default' && html`queue <a href="#/sessions?queue=${encodeURIComponent(s.queue)}"><b>${s.queue}</b></a>`, s.priority && html`priority <b>${s.priority}</b>`,
  s.owner && html`owner <a href="#/sessions?owner=${encodeURIComponent(s.owner)}"><b>${s.owner}</b></a>`,
  s.lane !== s.owner && html`lane <b>${s.lane}</b>`,
  html`created <b>${time(s.created_at)}</b>`, html`changed <b>${time(s.updated_at)}</b>`,
  (s.spent_usd || s.budget_usd) && html`spent <b>${spent(s)}</b>`,
  s.spent_tokens && `${number(s.spent_tokens)} tokens`,
  s.agent?.folder && html`in <b class="mono">${s.agent.folder}</b>`, s.agent?.branch && html`branch <b class="mono">${s.agent.branch}</b>`,
  s.agent?.terminal && html`terminal <b class="mono">${s.agent.terminal}</b>`,
  s.parent_id && html`child of ${link(s.parent_id)}`, s.origin && html`fork of ${link(s.origin.session_id)} at record ${s.origin.seq}`,
  ...s.tags.map((tag) => html`<a class="tag" href="#/sessions?tag=${encodeURIComponent(tag)}">${tag}</a>`),
].filter(Boolean).map((each) => html`<span>${each}</span>`);

const head = (d, page) => html`<div class="top"><div><div class="row"><h1 class="mono">${d.s.session_id}</h1>${status(d.s.status, true)}</div><div
  class="meta">${meta(d.s)}</div>${d.s.agent?.prompt ? html`<p class="small dim">“${d.s.agent.prompt}”</p>` : ''}${bar(d.s.progress)}</div>${buttons(d, page)}</div>`;

export const keys = { p: (page) => page.may('operator') && can(page.data.s).pause && ask('pause', page.data, page) };

// why it is not running

const line = (name, side) => html`<div class="item"><span class="name">${name}</span><span class="dim small">${side}</span></div>`;

const pause = (p) => line(html`<span class="st paused">${p.standing ? html`<a href="#/">everything is paused</a>` : p.kind}</span> ${p.reason}`,
  html`${p.by ? `by ${p.by}, ` : ''}${time(p.created_at)}${p.freeze ? ', timers are frozen' : ''}`);

// The engine's frames are the same in every traceback; a reader looks for those of the step.
const isEngine = (frame) => /^  File ".*[/\\]pausepoint[/\\](runtime|engine|threads|drivers)/.test(frame);

function failure({ type, message, step, attempts, traceback }) {
  const { false: own = [], true: others = [] } = Object.groupBy(traceback.split(/\n(?=  File )/), isEngine);
  const text = [...own, others.length ? 'The engine called it:' : '', ...others].join('\n');
  return html`${line(html`<span class="st failed">${type}</span> ${message}`, `${step}, ${counted(attempts, 'attempt')}`)}${traceback ? html`<pre
    class="trace" tabindex="0" role="region" aria-label="Traceback">${text}</pre>` : ''}`;
}

function waits(d, page) {
  const { s } = d, isIn = (...names) => names.includes(s.status), waitsFor = (what) => s.waiting.includes(what);
  const button = (verb, text, may) => may ? html`<button class="b tiny" @click=${() => ask(verb, d, page)}>${text}</button>` : '';
  return [
    [s.wakes_at && !waitsFor('answer') && !isIn('running', 'pausing'), html`Wakes ${s.wakes_at && later(s.wakes_at)}`,
      button('wake', 'Wake now…', page.may('operator') && isIn('sleeping'))],
    [waitsFor('message'), 'Waits for a message', button('send', 'Send a message…', page.may('answerer'))],
    [waitsFor('child'), 'Waits for its children', d.to && html`<a class="b tiny" href=${d.to({ tab: 'children' })}>Children</a>`],
    [s.agent?.call, html`Waits to run <b class="mono">${s.agent?.call}</b>`],
    [s.agent?.background, html`Its commands: <b class="mono">${s.agent?.background}</b>`],
    [s.cancel_requested && !isIn('cancelled'), 'Will be cancelled at the next safe point'],
    [s.waits_for_slot, `Waits for a free slot of ${s.waits_for_slot}`, html`<a class="b tiny" href="#/store">Limits</a>`],
    [isIn('ready', 'created') && !s.guest && !s.waits_for_slot, 'Resume it, or an engine that drives its workflow picks it up'],
  ].map(([isSo, name, side], n) => isSo && [n, line(name, side)]);
}

// Keyed, because a pause that comes first must not change what is typed below it.
function why(d, page) {
  const { pauses = [], questions = [], failure: failed } = d.s, found = [
    ...pauses.map((each) => [`${each.kind} ${each.created_at}`, pause(each)]), failed && ['failure', failure(failed)],
    ...questions.map((each) => [each.id, question(each, page)]), ...waits(d, page),
  ].filter(Boolean);
  return found.length ? html`<section class="sheet" aria-label="Why it is not running">${repeat(found, ([key]) => key, ([, each]) => each)}</section>` :
    '';
}

function moved({ key, target, currentTarget }) {
  const all = [...currentTarget.children], by = { ArrowRight: 1, ArrowLeft: -1 }[key], next = by && all.at((all.indexOf(target) + by) % all.length);
  next?.focus();
  next?.click();
}

const tabs = (d, page) => html`<section class="sheet" aria-label="Details"><div class="tabs" role="tablist" @keydown=${moved}>${Object.keys(TABS).map((name) =>
  html`<a role="tab" id="tab-${name}" href=${d.to({ tab: name })} aria-selected=${d.tab === name}>${capital(name)}</a>`)}</div>
  <div role="tabpanel" aria-labelledby="tab-${d.tab}">${TABS[d.tab].view(d, page)}</div></section>`;

export const view = (d, page) => html`${head(d, page)}<div class="stack">${why(d, page)}${d.spans ? [course(d, page), overview(d), tabs(d, page)] : ''}</div>`;
