// Words for times, money and numbers.
import { html } from './marks.js';

const UNITS = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
const SIZES = ['bytes', 'KiB', 'MiB', 'GiB'];

export function span(seconds) {
  if (seconds > 0 && seconds < 0.0005) return '< 1 ms';
  if (seconds < 0.95) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const at = UNITS.findIndex(([size]) => seconds >= size), [size, unit] = UNITS[at], [smaller, part] = UNITS[at + 1] ?? [size];
  const whole = Math.floor(seconds / size), rest = Math.floor((seconds % size) / smaller);
  return `${whole} ${unit}` + (rest && whole < 10 ? ` ${rest} ${part}` : '');
}

const since = (when) => (Date.now() - Date.parse(when)) / 1000;
export const ago = (when) => since(when) < 3 ? 'just now' : `${span(since(when))} ago`;
export const left = (when) => since(when) > 0 ? 'no time left' : `${span(-since(when))} left`;

// The moment itself is in the title, in the reader's own time zone.
const moment = (text) => (when) => when ? html`<time datetime=${when} title="${new Date(when).toLocaleString()} (${when})">${text(when)}</time>` : '';
export const time = moment(ago);
export const later = moment((when) => since(when) > 0 ? 'now' : `in ${span(-since(when))}`);
export const clock = moment((when) => new Date(when).toLocaleTimeString([], { timeStyle: 'medium' }));

// A time of day, as exactly as something that lasts so many milliseconds needs it.
export function exact(when, long) {
  const seconds = long < 3.6e6 && { second: '2-digit' }, parts = long < 10_000 && { fractionalSecondDigits: 3 }, day = long > 8.64e7 && { month: 'short', day: 'numeric' };
  return new Date(when).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', ...seconds, ...parts, ...day });
}

// The server's moments in a text, in the reader's own time zone.
export const local = (text) => text?.replace(/\d{4}-\d\d-\d\dT[\d:.+-]+\d/g, (when) => new Date(when).toLocaleString());

export const money = (usd) => usd ? `$${usd.toFixed(usd < 0.01 ? 4 : 2)}` : '–';
export const spent = ({ spent_usd, budget_usd }) => `${spent_usd ? money(spent_usd) : '$0'}${budget_usd == null ? '' : ` of ${money(budget_usd)}`}`;
export const number = (n) => n.toLocaleString('en');
export const total = (figures) => Object.values(figures ?? {}).reduce((all, each) => all + each, 0);
export const sum = (list, name) => list.reduce((total, each) => total + (each[name] ?? 0), 0);
export const counted = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;
export const capital = (word) => word[0].toUpperCase() + word.slice(1);

export function size(bytes) {
  const at = Math.min(SIZES.length - 1, bytes && Math.floor(Math.log2(bytes) / 10));
  return at ? `${(bytes / 1024 ** at).toFixed(1)} ${SIZES[at]}` : counted(bytes, 'byte');
}

// A value of a state as text.
export const shown = (value) => typeof value === 'string' ? value : JSON.stringify(value, null, 2);
