// The tab State: the values at any checkpoint, and what the visit has changed.
import { html, nothing } from './vendor/lit-html.js';
import { address, get, of } from './api.js';
import { shown, size, time } from './words.js';
import { more, ROWS } from './shapes.js';
import { diff } from './diff.js';

const KEPT = 60, PART = 100_000;
const states = new Map();  // by address: the state at a checkpoint does not change
let wait = null;

// The server leaves a large field out and says how many bytes it has.
export class Large { constructor(bytes) { this.bytes = bytes; } }

// Return the state at a record, or the present one.
export async function read(id, at) {
  const path = `${of(id)}/state${at ? `?at=${at}` : ''}`;
  if (at && states.has(path)) return states.get(path);
  const { values } = await get(path);
  for (const [name, value] of Object.entries(values)) if (value?.href && value.large) values[name] = new Large(value.large);
  if (states.size > KEPT) states.clear();
  states.set(path, values);
  return values;
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const isKept = (point) => point && !point.left_behind;

// The places of the slider are the checkpoints, then the present state (null) if it was edited after the last one.
export async function load({ s: { session_id: id }, points, query, before }) {
  const last = points.findLast(isKept), present = await read(id);
  const places = before || (last && same(present, await read(id, last.seq))) ? points : [...points, null];
  const asked = places.findIndex((each) => String(each?.seq) === query.get('at')), i = asked < 0 ? places.length - 1 : asked;
  const point = places[i], former = places.slice(0, i).findLast(isKept);
  return { places, i, point, values: point ? await read(id, point.seq) : present, former: former && await read(id, former.seq) };
}

function changed(former = '', value = '') {
  const [a, b] = [former, value].map(shown);
  return a.includes('\n') && b.includes('\n') ? diff(a, b) : html`<span class="was">${a}</span> <span class="is">${b}</span>`;
}

function large({ s, point }, name, value, page) {
  const path = `${of(s.session_id)}/state/${encodeURIComponent(name)}${point ? `?at=${point.seq}` : ''}`;
  const show = async () => { value.text = shown((await get(path)).value).slice(0, PART); page.draw(); };
  return html`<span class="row">${size(value.bytes)} <button class="b tiny" @click=${show}>Show</button><a class="b tiny" href=${address(path)}
    download="${name}.json">Download</a></span>${value.text}${value.text?.length === PART ? '…' : ''}`;
}

function row(d, name, page) {
  const value = d.values[name], had = d.former?.[name], isLarge = value instanceof Large;
  const isChanged = d.former && (isLarge ? d.point?.fields.includes(name) : !same(had, value)), kind = isChanged ? 'chg' : '';
  return html`<dt class=${kind}>${name}</dt><dd class=${kind} tabindex="0">${isLarge ? large(d, name, value, page) : isChanged ? changed(had, value) :
    shown(value) || html`<span class="faint">empty</span>`}</dd>`;
}

function slid({ target }, d, page) {
  clearTimeout(wait);
  wait = setTimeout(() => page.go(d.to({ at: d.places[target.value]?.seq ?? '' }), true), 100);
}

export function view(d, page) {
  const { point, places, i } = d, names = Object.keys(d.values);
  return html`<div class="slider"><div class="row small"><label class="grow" for="when">${point ? html`After <b class="mono">${point.name}</b> <span
    class="dim">· record ${point.seq} · ${time(point.ended_at)}${point.left_behind ? ' · undone by a rewind' : ''}</span>` :
      html`<b>Now</b>`}</label><span class="dim num">${i + 1} of ${places.length}</span></div>
    <input id="when" type="range" ?hidden=${places.length < 2} max=${places.length - 1} .value=${String(i)} aria-valuetext=${point?.name ?? 'now'}
      @input=${(event) => slid(event, d, page)}></div>
    <dl class="kv">${names.slice(0, ROWS).map((name) => row(d, name, page))}</dl>${more(names)}${names.length ? nothing :
      html`<p class="empty">The state has no fields.</p>`}`;
}
