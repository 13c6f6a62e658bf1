// The tab Conversation: what models were told and answered, what tools did, and what people said, oldest first.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of } from './api.js';
import { clock, counted, money, number, span } from './words.js';

const READ = 50;
const TONES = { assistant: 'running', question: 'waits', answer: 'waits', message: 'waits', error: 'failed' };

export async function load({ s, query }) {
  const { turns } = await get(of(s.session_id) + '/conversation', { before: query.get('turns') ?? '', limit: READ });
  return { turns };
}

const text = (value) => typeof value === 'string' ? value : JSON.stringify(value, null, 2);
const value = (name, content) => html`<dt class="mono">${name}</dt><dd class="mono" tabindex="0">${text(content)}</dd>`;

const call = ({ name, arguments: inputs }) => html`<p class="small">wants to call <b class="mono">${name}</b></p><pre tabindex="0">${text(inputs)}</pre>`;

function tool(each) {
  const inputs = Object.entries(each.arguments ?? {}), first = inputs[0]?.[1];
  return html`<details><summary class="clip"><span class="dim">${first === undefined ? each.operation ? 'returned' : '' : text(first).slice(0, 200)}</span>${each.operation ?
    '' : ' has not ended'}</summary><dl class="kv">${inputs.map(([name, content]) => value(name, content))}${each.operation ?
    value('returned', each.result) : ''}</dl></details>`;
}

const turn = (each) => html`<article class="turn ${each.role}"><header class="row small"><b class=${`st ${TONES[each.role] ?? ''}`}>${each.role}</b><span
  class="mono clip" title=${each.name}>${each.name}</span><span class="dim more">${[each.operation && span(each.took_seconds),
    each.usd && money(each.usd), each.tokens && `${number(each.tokens)} tokens`, each.left_behind && 'undone by a rewind'].filter(Boolean).map((text) => `${text} · `)}${clock(each.at)}</span></header>
  ${each.thinking ? html`<details class="known small"><summary>Thinking</summary><div class="line dim">${each.thinking}</div></details>` : ''}${each.text ?
    html`<div class="line">${each.text}</div>` : ''}${each.calls.map(call)}${each.role === 'tool' ? tool(each) : ''}</article>`;

export function view({ turns, query, to }) {
  const link = (name, to_) => html`<a class="b tiny" href=${to({ turns: to_ })}>${name}</a>`, before = query.get('turns');
  if (!turns.length) return html`<p class="empty"><b>Nobody has said anything</b>Calls of models and tools, questions, answers and messages appear here.</p>`;
  return html`<div class="row pad small dim">${counted(turns.length, 'turn')}${turns.length >= READ ? link('Earlier', turns[0].seq) : ''}${before ?
    link('Latest', '') : ''}</div><div class="scroll tail talk" tabindex="0" role="region" aria-label="Conversation"><div>${repeat(turns,
    (each, n) => `${each.seq} ${n}`, turn)}</div></div>`;
}
