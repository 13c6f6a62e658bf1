// Compare two sessions, such as a fork and its source: their facts, and the values that differ between two checkpoints.
import { html } from './marks.js';
import { get, of, Problem } from './api.js';
import { at, more, ROWS, status } from './shapes.js';
import { changed } from './state.js';
import { counted, money, number, shown, time } from './words.js';

const LONG = 10_000, NEAR = 50;  // characters of a value that are drawn; how many ids are suggested
const SIDES = [['one', 'a', 'First'], ['other', 'b', 'Second']];

export const title = () => 'Compare';
export const topics = ({ query }) => SIDES.map(([name]) => query.get(name)).filter(Boolean).map((id) => `session:${id}`);
export const href = (query) => `#/compare?${new URLSearchParams(Object.entries(query).filter(([, value]) => value))}`;

// A refusal is drawn where the answer would be.
const tried = (work) => work.catch((problem) => {
  if (!(problem instanceof Problem) || !problem.status || problem.status >= 500 || problem.status === 401) throw problem;
  return { refusal: problem.message };
});

async function side(id, place) {
  if (!id) return {};
  return { id, place, ...await tried(Promise.all([get(of(id)), get(of(id) + '/checkpoints', { limit: ROWS })]).then(([s, { checkpoints }]) => ({ s, points: checkpoints }))) };
}

export async function load({ query }) {
  const sides = await Promise.all(SIDES.map(([name, place]) => side(query.get(name)?.trim(), query.get(place)))), [one, other] = sides, first = one.s ?? other.s;
  const near = !first || (one.id && other.id) ? [] : (await get('/sessions', { workflow: first.workflow, limit: NEAR })).sessions;
  const diff = one.s && other.s && await tried(get(of(one.id) + '/diff', { a: one.place, b: other.place, other: other.id }));
  return { sides, diff, near: near.filter((each) => each.session_id !== first.session_id) };
}

// what is compared

function go(form, page, replace) {
  page.go(href(Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]))), replace);
}

// Checkpoints belong to one session, so another session begins with its present state.
function picked({ target, currentTarget: form }, page) {
  const place = SIDES.find(([name]) => name === target.name)?.[1];
  if (place && form.elements[place]) form.elements[place].value = '';
  go(form, page, true);
}

function choice({ points, place }, name, label) {
  const visits = [...points].reverse().map((each) => [String(each.seq), `${each.name} (record ${each.seq}${each.left_behind ? ', undone by a rewind' : ''})`]);
  const all = [['', 'now'], ...visits, ...place && visits.every(([seq]) => seq !== place) ? [[place, place]] : []];
  return html`<label class="field">Checkpoint of the ${label} session<select class="in" name=${name}>${all.slice(0, ROWS).map(([value, text]) =>
    html`<option value=${value} .selected=${value === (place ?? '')}>${text}</option>`)}</select></label>`;
}

const part = (it, [name, place, label]) => html`<div class="stack"><label class="field">${label} session<input class="in mono" name=${name}
  list="near" autocomplete="off" required .value=${it.id ?? ''}></label>${it.refusal ? html`<p class="err" role="alert">${it.refusal}</p>` : ''}${it.points ?
  choice(it, place, label.toLowerCase()) : ''}</div>`;

const swapped = ([one, other]) => href({ one: other.id, b: one.place, other: one.id, a: other.place });

const form = ({ sides, near }, page) => html`<form class="sheet pad stack" aria-label="What is compared" @submit=${(event) => { event.preventDefault(); go(event.target, page); }}
  @change=${(event) => picked(event, page)}><div class="cols even">${sides.map((each, n) => part(each, SIDES[n]))}</div><datalist id="near">${near.map((each) =>
  html`<option value=${each.session_id}></option>`)}</datalist><div class="row"><button class="b main">Compare</button>${sides[0].id && sides[1].id ?
  html`<a class="b" href=${swapped(sides)}>Swap</a>` : ''}</div></form>`;

// what is different

const FACTS = {
  Status: (s) => status(s.status), Workflow: (s) => `${s.workflow} v${s.version}`, At: at, Failure: (s) => s.failure && `${s.failure.type}: ${s.failure.message.split('\n')[0]}`,
  Reason: (s) => s.pause?.reason, Owner: (s) => s.owner, Tags: (s) => s.tags.join(' '), Spent: (s) => s.spent_usd ? money(s.spent_usd) : '',
  Tokens: (s) => s.spent_tokens ? number(s.spent_tokens) : '', Created: (s) => time(s.created_at), Changed: (s) => time(s.updated_at),
};

const facts = ([one, other]) => html`<section class="sheet" aria-label="Facts"><table class="halves"><thead><tr><th><span class="unseen">fact</span></th>${[one, other].map(({ id }) =>
  html`<th class="plain"><a class="mono" href="#${of(id)}">${id}</a></th>`)}</tr></thead><tbody>${Object.entries(FACTS).map(([name, cell]) => {
    const cells = [one, other].map(({ s }) => cell(s));
    return cells.some(Boolean) ? html`<tr><td class="dim">${name}</td>${cells.map((each) => html`<td>${each || '–'}</td>`)}</tr>` : '';
  })}</tbody></table></section>`;

function text(value) {
  const all = shown(value) || '(empty)';
  return all.length > LONG ? `${all.slice(0, LONG)}… ${counted(all.length - LONG, 'more character')}` : all;
}

const KINDS = { grown: ({ added }) => html`${counted(added.length, 'item')} more: <span class="is">${text(added)}</span>`, added: ({ after = null }) => html`only in the second: <span
  class="is">${text(after)}</span>`, removed: ({ before = null }) => html`only in the first: <span class="was">${text(before)}</span>`,
  changed: ({ before = null, after = null }) => changed(text(before), text(after)) };

function differences({ refusal, changes }, [one, other]) {
  if (refusal) return html`<p class="note bad" role="alert">${refusal}</p>`;
  const place = ({ id, place }) => html`<b class="mono">${id}</b> ${place ? `at ${place}` : 'now'}`;
  return html`<section class="sheet" aria-label="Differences"><header><h2>${changes.length ? counted(changes.length, 'difference') : 'No differences'}</h2><span class="dim small">in the state, from ${
    place(one)} to ${place(other)}</span></header>${changes.length ? html`<dl class="kv">${changes.slice(0, ROWS).map((each) => html`<dt>${each.path}</dt><dd
    tabindex="0">${KINDS[each.kind](each)}</dd>`)}</dl>${more(changes)}` : html`<p class="empty">The two states have the same values.</p>`}</section>`;
}

export const view = (d, page) => html`<div class="top"><h1>Compare</h1></div><div class="stack">${form(d, page)}${d.diff ? [facts(d.sides), differences(d.diff, d.sides)] : html`<p
  class="empty">Name two sessions, such as a fork and its source. Their states are compared, as they are now or at a checkpoint.</p>`}</div>`;
