// The tab Operations: what each operation received and returned, newest first.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of } from './api.js';
import { ask as act, can } from './verbs.js';
import { capital, clock, counted, money, number, size, span } from './words.js';

const READ = 50, CUT = 4096;  // the server sends the beginning of a larger result

let whole = {};  // results that were asked for, of one session

export async function load({ s, query }) {
  if (whole.id !== s.session_id) whole = { id: s.session_id, results: {} };
  const { operations } = await get(of(s.session_id) + '/operations', { before: query.get('calls') ?? '', limit: READ });
  return { calls: operations.reverse() };
}

async function ask({ id, seq }, page) {
  whole.results[seq] = (await get(`${of(whole.id)}/operations/${encodeURIComponent(id)}`)).result;
  page.drawSoon();
}

const text = (value) => typeof value === 'string' ? value : JSON.stringify(value, null, 2);

const value = (name, content) => html`<dt class="mono">${name}</dt><dd class="mono" tabindex="0">${text(content)}</dd>`;

const received = ({ arguments: inputs }) => inputs === null ? html`<dt>arguments</dt><dd class="dim">not recorded</dd>` :
  Object.entries(inputs).map(([name, content]) => value(name, content));

const WAYS = { rewind: 'to before it', fork: 'from before it' };

const ways = (d, operation, page) => Object.entries(WAYS).map(([verb, where]) => page.may('operator') && can(d.s)[verb] ?
  html`<button class="b tiny" @click=${() => act(verb, { ...d, operation }, page)}>${capital(verb)} ${where}…</button>` : '');

function row(each, d, page) {
  const more = each.bytes > CUT && !(each.seq in whole.results), cost = [each.usd && money(each.usd), each.tokens && `${number(each.tokens)} tokens`];
  return html`<details class="evd"><summary class="ev"><span class="t">${clock(each.ended_at)}</span><b
    class="clip mono" title=${each.name}>${each.name}</b><span class="clip">${each.label} <span class="dim">${[`${each.step}#${each.visit}`,
      span(each.took_seconds), ...cost, each.outcome, each.left_behind && 'undone by a rewind'].filter(Boolean).join(' · ')}</span></span></summary>
    <dl class="kv">${received(each)}${value('returned', whole.results[each.seq] ?? each.result)}</dl><div
      class="row pad">${more ? html`<button class="b tiny" @click=${() => ask(each, page)}>Show all ${size(each.bytes)}</button>` : ''}${ways(d, each, page)}</div></details>`;
}

export function view(d, page) {
  const { calls } = d, link = (name, calls) => html`<a class="b tiny" href=${d.to({ calls })}>${name}</a>`;
  if (!calls.length) return html`<p class="empty"><b>No operation has ended</b>A step remembers a call with <code>ctx.do</code>.</p>`;
  return html`<div class="row pad small dim">${counted(calls.length, 'operation')}${calls.length === READ ? link('Earlier', calls.at(-1).seq) :
    ''}${d.query.get('calls') ? link('Latest', '') : ''}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Operations">${repeat(calls, (each) => each.seq, (each) => row(each, d, page))}</div>`;
}
