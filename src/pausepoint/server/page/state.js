// The tab State: the values at any checkpoint, and what the visit has changed.
import { html } from './marks.js';
import { address, get, of } from './api.js';
import { shown, size, time } from './words.js';
import { more, ROWS } from './shapes.js';
import { diff } from './diff.js';

const states = new Map();  // by address: the state at a checkpoint does not change
let wait = null;

// A large field, which the server leaves out.
export class Large { constructor(bytes) { this.bytes = bytes; } }

const path = (id, at, field = '') => `${of(id)}/state${field && '/'}${encodeURIComponent(field)}${at ? `?at=${at}` : ''}`;

export async function read(id, at) {
  const key = path(id, at);
  if (at && states.has(key)) return states.get(key);
  const { values } = await get(key);
  for (const [name, value] of Object.entries(values)) if (value?.href && value.large) values[name] = new Large(value.large);
  if (states.size > 60) states.clear();
  states.set(key, values);
  return values;
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const isKept = (point) => point && !point.left_behind;

// The slider has the checkpoints, then the present state (null) if it was edited after the last one.
export async function load({ s: { session_id: id }, points, query, before }) {
  const last = points.findLast(isKept), present = await read(id);
  const places = before || (last && same(present, await read(id, last.seq))) ? points : [...points, null];
  const asked = places.findIndex((each) => String(each?.seq) === query.get('at')), i = asked < 0 ? places.length - 1 : asked;
  const point = places[i], former = places.slice(0, i).findLast(isKept);
  return { places, i, point, values: point ? await read(id, point.seq) : present, former: former && await read(id, former.seq) };
}

export function changed(former = '', value = '') {
  const [a, b] = [former, value].map((each) => typeof each === 'string' ? each : shown(each).replaceAll(',\n', '\n'));
  return a.includes('\n') && b.includes('\n') ? diff(a, b) : html`<span class="was">${a}</span>${a && ' '}<span class="is">${b}</span>`;
}

function row({ s, point, values, former }, name) {
  const value = values[name], had = former?.[name], isLarge = value instanceof Large;
  const isChanged = former && (isLarge ? point?.fields.includes(name) : !same(had, value)), kind = isChanged ? 'chg' : '';
  return html`<dt class=${kind}>${name}</dt><dd class=${kind} tabindex="0">${isLarge ? html`${size(value.bytes)} <a class="b tiny"
    href=${address(path(s.session_id, point?.seq, name))} target="_blank">Open</a>` : isChanged ? changed(had, value) : shown(value)}</dd>`;
}

function slid({ target }, d, page) {
  clearTimeout(wait);
  wait = setTimeout(() => page.go(d.to({ at: d.places[target.value]?.seq ?? '' }), true), 100);
}

export function view(d, page) {
  const { point, places, i } = d, names = Object.keys(d.values);
  return html`<div class="slider"><label class="small" for="when">${point ? html`After <b class="mono">${point.name}</b> <span
    class="dim">· record ${point.seq} · ${time(point.ended_at)}${point.left_behind ? ' · undone by a rewind' : ''}</span>` : 'Now'}</label>
    <input id="when" type="range" ?hidden=${places.length < 2} max=${places.length - 1} .value=${String(i)} aria-valuetext=${point?.name ?? 'now'}
      @input=${(event) => slid(event, d, page)}></div>
    <dl class="kv">${names.slice(0, ROWS).map((name) => row(d, name))}</dl>${more(names)}${names.length ? '' :
      html`<p class="empty">The state has no fields.</p>`}`;
}
