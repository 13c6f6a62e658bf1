// Time as a position on the chart. Idle time is shortened: a night's wait must not hide 40 seconds of work.
const SHARE = 0.16, LEAST = 0.012;  // of all work: the longest idle time that is drawn, and the shortest stretch of work
const HOUR = 3.6e6, SHORT = 5000;
const KINDS = { operation: 2, question: 1, timer: 1, child: 1 };

export const ms = (when) => Date.parse(when);

// Seconds of some parts together.
export const between = (parts, end) => parts.reduce((sum, part) => sum + Math.max(0, (part.ended_at ? ms(part.ended_at) : end) - ms(part.began_at)), 0) / 1000;

// Where visits, waits and operations begin and end: [time, 0 for a visit, 1 for a wait, 2 for an operation, +1 or -1].
function edges(visits, end) {
  const found = [];
  const add = (kind, from, to) => found.push([from, kind, 1], [Math.max(from, to), kind, -1]);
  for (const visit of visits) {
    const until = visit.ended_at ? ms(visit.ended_at) : end;
    add(0, ms(visit.began_at), until);
    for (const part of visit.parts) if (KINDS[part.kind]) add(KINDS[part.kind], ms(part.began_at), part.ended_at ? ms(part.ended_at) : until);
  }
  return found.sort((a, b) => a[0] - b[0]);
}

// A stretch of a visit in which nothing runs that is longer than its code ran in all is idle: the session was paused.
function limit(visits) {
  const longest = visits.map((visit) => [ms(visit.began_at), visit.ended_at ? ms(visit.ended_at) : Infinity, visit.ended_at ?
    Math.max(visit.took_seconds * 1000, SHORT) : HOUR]);
  let n = 0;
  return (from) => { while (n < longest.length - 1 && longest[n][1] <= from) n++; return longest[n]?.[2] ?? HOUR; };
}

function stretches(visits, end) {
  const open = [0, 0, 0], found = [], most = limit(visits);
  let last = null;
  for (const [when, kind, by] of edges(visits, end)) {
    if (last !== null && when > last) {
      const isBusy = open[2] > 0 || (open[0] > 0 && !open[1] && when - last <= most(last));
      if (found.at(-1)?.isBusy === isBusy) found.at(-1).to = when;
      else found.push({ from: last, to: when, isBusy });
    }
    open[kind] += by;
    last = when;
  }
  return found;
}

export function scale(visits, end, begin) {
  const found = stretches(visits, end), work = found.reduce((sum, each) => sum + (each.isBusy ? each.to - each.from : 0), 0) || 1;
  const length = (each) => each.isBusy ? Math.max(each.to - each.from, work * LEAST) : Math.min(each.to - each.from, work * SHARE);
  const all = found.reduce((sum, each) => sum + length(each), 0) || 1;
  let sum = 0;
  for (const each of found) { each.at = 100 * sum / all; sum += length(each); each.till = 100 * sum / all; }
  return { x: (when) => position(found, when), gaps: found.filter((each) => !each.isBusy && length(each) < each.to - each.from), from: found[0]?.from ??
    begin, to: found.at(-1)?.to ?? end };
}

function position(found, when) {
  let low = 0, high = found.length - 1;
  while (low < high) { const middle = (low + high) >> 1; if (when <= found[middle].to) high = middle; else low = middle + 1; }
  const each = found[low];
  return each ? Math.max(0, Math.min(100, each.at + (each.till - each.at) * (when - each.from) / (each.to - each.from || 1))) : 0;
}
