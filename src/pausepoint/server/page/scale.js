// Time as a position on the chart. Idle time is shortened: a night's wait must not hide 40 seconds of work.
import { sum } from './words.js';

const SHARE = 0.16, LEAST = 0.012;  // of all work: the longest idle time that is drawn, and the shortest stretch of work
const HOUR = 3.6e6, SHORT = 5000;

export const isWait = ({ kind }) => ['question', 'timer', 'child'].includes(kind);

// What is open lasts until its visit's end, or until now.
function timed(visit, now) {
  const end = visit.ended_at ? Date.parse(visit.ended_at) : now, all = [visit, ...visit.parts];
  for (const each of all) {
    each.from = Date.parse(each.began_at);
    each.to = Math.max(each.from, each.ended_at ? Date.parse(each.ended_at) : end);
    each.seconds = (each.ended_at && each.took_seconds) ?? (each.to - each.from) / 1000;
  }
  return all;
}

function stretches(visits, now) {
  const edges = visits.flatMap((visit) => timed(visit, now)).flatMap((each) => [[each.from, 1, each], [each.to, -1, each]]);
  const open = { visit: 0, operation: 0, wait: 0 }, found = [];
  let last = Infinity, most = 0;
  for (const [when, by, each] of edges.sort(([a], [b]) => a - b)) {
    if (when > last) {
      const isBusy = open.operation > 0 || (open.visit > 0 && !open.wait && when - last <= most);
      if (found.at(-1)?.isBusy === isBusy) found.at(-1).to = when;
      else found.push({ from: last, to: when, isBusy });
    }
    open[each.parts ? 'visit' : isWait(each) ? 'wait' : each.kind] += by;
    // If nothing runs for longer than the visit's code ran in all, the session was paused.
    if (each.parts && by > 0) most = each.ended_at ? Math.max(each.took_seconds * 1000, SHORT) : HOUR;
    last = when;
  }
  return found;
}

// Return where a time is, and where the shortened times are, in percent.
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
    return each ? each.at + each.width * (when - each.from) / each.long : 0;
  };
  return { x, gaps: found.filter((each) => each.drawn < each.long), from: found[0]?.from ?? now, to: found.at(-1)?.to ?? now };
}
