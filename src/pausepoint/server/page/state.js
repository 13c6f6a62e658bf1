// The tab State: the values at any checkpoint, and what the visit has changed.
import { html, nothing } from './vendor/lit-html.js';
import { address, get, of } from './api.js';
import { counted, shown, size, time } from './words.js';
import { diff } from './diff.js';
import * as verbs from './verbs.js';

const KEPT = 60, ROWS = 200, PART = 100_000;
const states = new Map();  // the states that were read, by session and record: they do not change
const fields = new Map();  // large fields that a person has asked for

// The server leaves a large field out and says how many bytes it has.
export class Large { constructor(bytes) { this.bytes = bytes; } }

// Return the state at a record, or the present one.
export async function read(id, at) {
  const key = `${id} ${at}`;
  if (at && states.has(key)) return states.get(key);
  const found = (await get(of(id) + '/state', { at })).values;
  const values = Object.fromEntries(Object.entries(found).map(([name, value]) => [name, value?.large && value.href ? new Large(value.large) : value]));
  states.set(key, values);
  if (states.size > KEPT) states.delete(states.keys().next().value);
  return values;
}

// The places of the slider are the checkpoints, then the present state if it was edited after the last one.
export async function load({ s, points, query, before }) {
  const id = s.session_id, last = points.findLast((each) => !each.left_behind), asked = query.get('at');
  const present = await read(id);
  const places = before || (last && same(present, await read(id, last.seq))) ? points : [...points, null];
  const index = asked ? places.findIndex((each) => String(each?.seq) === asked) : -1, i = index < 0 ? places.length - 1 : index;
  const point = places[i], former = places.slice(0, i).findLast((each) => each && !each.left_behind);
  return { places, i, present, values: point ? await read(id, point.seq) : present, former: former ? await read(id, former.seq) : null };
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// one value

function changed(former, value) {
  if (Array.isArray(former) && Array.isArray(value) && value.length > former.length && same(former, value.slice(0, former.length))) {
    return html`${former.length ? html`<span class="dim">${counted(former.length, 'item')} before</span>` :
      nothing}${value.slice(former.length).map((each) => html`<span class="line plus">${shown(each)}</span>`)}`;
  }
  const [a, b] = [former, value].map((each) => each === undefined || each === '' ? '' : shown(each));
  if (a.includes('\n') && b.includes('\n')) return diff(a, b);
  return html`${a ? html`<span class="was">${a}</span> ` : nothing}<span class="is">${b}</span>`;
}

function large(d, name, { bytes }, page) {
  const point = d.places[d.i], path = `${of(d.s.session_id)}/state/${encodeURIComponent(name)}`, at = point?.seq, key = `${path} ${at ?? d.s.etag}`,
    found = fields.get(key);
  const fetch = async () => { const { value } = await get(path, { at }); fields.clear(); fields.set(key, shown(value)); page.draw(); };
  const url = address(path);
  if (at) url.searchParams.set('at', at);
  if (!found) return html`<span class="row"><span class="dim">${size(bytes)}</span><button class="b tiny" @click=${fetch}>Show</button><a class="b tiny"
    href=${url} download="${name}.json">Download</a></span>`;
  return html`${found.slice(0, PART)}${found.length > PART ? html`<span class="line faint">… the first ${size(PART)} of ${size(bytes)}. <a href=${url}
    download="${name}.json">Download all</a></span>` : nothing}`;
}

function value(d, name, page) {
  const point = d.places[d.i], found = d.values[name], had = d.former?.[name];
  const isLarge = found instanceof Large, isChanged = d.former && (isLarge ? point?.fields.includes(name) : !same(had, found));
  return html`<dt class=${isChanged ? 'chg' : ''}>${name}</dt><dd class=${isChanged ? 'chg' : ''}
    tabindex="0">${isLarge ? large(d, name, found, page) : isChanged ? changed(had instanceof Large ? `(${size(had.bytes)})` : had, found) : shown(found) ||
      html`<span class="faint">empty</span>`}</dd>`;
}

// the slider

let wait = null;
function slid(event, d, page) {
  const point = d.places[+event.target.value];
  clearTimeout(wait);
  wait = setTimeout(() => page.go(d.to({ tab: 'state', at: point?.seq ?? '' }), true), 100);
}

function slider(d, page) {
  const point = d.places[d.i], before = d.places.slice(0, d.i).some((each) => each && !each.left_behind);
  const name = point ? html`After <b class="mono">${point.name}</b> <span
    class="dim">· record ${point.seq} · ${time(point.ended_at)}${point.left_behind ? ' · undone by a rewind' : ''}${before ? ' · changes are marked' :
      ''}</span>` : html`<b>Now</b> <span class="dim">${d.places.length > 1 ? '· with the edits since the last checkpoint' : '· no checkpoint yet'}</span>`;
  const edit = page.may('operator') && verbs.can(d.s).edit && !d.before ? html`<button class="b tiny" @click=${() => verbs.edit(d, page)}>Edit…</button>` :
    nothing;
  return html`<div class="slider"><div class="row small"><label class="grow"
    for="when">${name}</label>${d.places.length > 1 ? html`<span class="dim num">${d.i + 1} of ${d.places.length}</span>` : nothing}${edit}</div>
    ${d.places.length > 1 ? html`<input id="when" type="range" min="0" max=${d.places.length - 1} .value=${String(d.i)}
      aria-valuetext=${point ? `after ${point.name}` : 'now'} @input=${(event) => slid(event, d, page)}>` : nothing}</div>`;
}

export function view(d, page) {
  const names = Object.keys(d.values);
  return html`${slider(d, page)}${names.length ? html`<dl class="kv">${names.slice(0, ROWS).map((name) => value(d, name, page))}</dl>${names.length > ROWS ?
    html`<p class="small dim pad">${counted(names.length - ROWS, 'more field')}.</p>` : nothing}` : html`<p class="empty">The state has no fields.</p>`}`;
}
