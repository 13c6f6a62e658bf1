// Time as a position on the chart. Idle time is shortened: a night's wait must not hide 40 seconds of work.
import { sum } from './words.js';

const SHARE = 0.16, LEAST = 0.012;  // of all work: the longest idle time that is drawn, and the shortest stretch of work
const HOUR = 3.6e6, SHORT = 5000;

export const isWait = ({ kind }) => ['question', 'timer', 'child'].includes(kind);

// What is open lasts until its visit's end, or until now. After a failed attempt there is a rest, then it runs again.
function timed(visit, now) {
  const end = visit.ended_at ? Date.parse(visit.ended_at) : now, all = [visit, ...visit.parts];
  for (const each of all) {
    each.from = Date.parse(each.began_at);
    each.to = Math.max(each.from, each.ended_at ? Date.parse(each.ended_at) : end);
    each.tries = each.failed.map(({ began_at, ended_at, again_at, error }) => ({ from: Date.parse(began_at), to: Date.parse(ended_at), error,
      until: again_at ? Math.min(Date.parse(again_at), each.to) : Date.parse(ended_at) }));
    const last = each.tries.at(-1);
    each.ran = last ? Math.min(Math.max(each.from, last.until), each.to) : each.from;  // when the attempt that ended it began
    each.rests = each.tries.map(({ to, until }) => ({ from: to, to: Math.max(to, until) }));
    each.seconds = (each.to - each.from - sum(each.rests.map(({ from, to }) => ({ long: to - from })), 'long')) / 1000;
  }
  visit.waited = waited(visit);
  const whole = (visit.to - visit.from) / 1000 - visit.waited, ran = visit.took_seconds + sum(visit.tries.map(({ from, to }) => ({ long: (to - from) / 1000 })), 'long');
  visit.seconds = Math.max(0, visit.ended_at && visit.took_seconds ? Math.min(ran, whole) : whole);
  return all;
}

const running = (each) => isWait(each) ? [] : each.tries.length ? [...each.tries, { from: each.ran, to: each.to }] : [each];
const idle = (each) => isWait(each) ? [each] : each.rests;

// The seconds of a visit in which it only waited: for people, timers, children, or its next attempt.
function waited({ from, to, rests, parts }) {
  const within = (by, name) => (each) => [[Math.max(each.from, from), by, name], [Math.min(each.to, to), -by, name]];
  const edges = [...rests, ...parts.flatMap(idle)].flatMap(within(1, 'idle')), busy = parts.filter(({ kind }) => kind === 'operation').flatMap(running);
  if (!edges.length) return 0;
  const open = { idle: 0, busy: 0 };
  let last = from, found = 0;
  for (const [when, by, name] of [...edges, ...busy.flatMap(within(1, 'busy'))].sort(([a], [b]) => a - b)) {
    if (open.idle && !open.busy) found += when - last;
    open[name] += by;
    last = when;
  }
  return Math.max(0, found) / 1000;
}

function stretches(visits, now) {
  const kindOf = (each) => each.parts ? 'visit' : each.kind, all = visits.flatMap((visit) => timed(visit, now));
  const pieces = all.flatMap((each) => [...(isWait(each) ? [] : each.kind === 'operation' ? running(each) : [each]).map((piece) => [piece, kindOf(each), each]),
    ...idle(each).map((piece) => [piece, 'wait', each])]);
  for (const { tries, parts } of visits) if (parts) pieces.push(...tries.map((each) => [each, 'operation', each]));
  const edges = pieces.flatMap(([{ from, to }, kind, each]) => [[from, 1, kind, each], [to, -1, kind, each]]);
  const open = { visit: 0, operation: 0, wait: 0, map: 0 }, found = [];
  let last = Infinity, most = 0;
  for (const [when, by, kind, each] of edges.sort(([a], [b]) => a - b)) {
    if (when > last) {
      const isBusy = open.operation > 0 || (open.visit > 0 && !open.wait && when - last <= most);
      if (found.at(-1)?.isBusy === isBusy) found.at(-1).to = when;
      else found.push({ from: last, to: when, isBusy });
    }
    open[kind] += by;
    // If nothing runs for longer than the visit's code ran in all, the session was paused.
    if (kind === 'visit' && by > 0) most = each.ended_at ? Math.max(each.took_seconds * 1000, SHORT) : HOUR;
    last = when;
  }
  return found;
}

// Return where a time is, which time is where, and where the shortened times are, in percent.
export function scale(visits, now) {
  const found = stretches(visits, now);
  for (const each of found) each.long = each.to - each.from;
  const work = sum(found.filter((each) => each.isBusy), 'long') || 1;
  for (const each of found) each.drawn = each.isBusy ? Math.max(each.long, work * LEAST) : Math.min(each.long, work * SHARE);
  const all = sum(found, 'drawn');
  let at = 0;
  for (const each of found) {
    each.at = at;
    at += each.width = 100 * each.drawn / all;
  }
  const x = (when) => {
    const each = found.find(({ to }) => when <= to);
    return each ? Math.max(0, each.at + each.width * (when - each.from) / each.long) : 0;
  };
  const when = (percent) => {
    const each = found.find(({ at, width }) => percent <= at + width);
    return each ? each.from + each.long * (percent - each.at) / each.width : now;
  };
  return { x, when, gaps: found.filter((each) => each.drawn < each.long), from: found[0]?.from ?? now, to: found.at(-1)?.to ?? now };
}
