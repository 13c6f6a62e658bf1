// The difference between two texts, line by line. A line is [kind, text], and '' is the kind of one that is in both.
import { html } from './vendor/lit-html.js';
import { more, ROWS } from './shapes.js';

const MOST = 2_000_000, AROUND = 3;

const all = (kind, lines) => lines.map((line) => [kind, line]);

// By the longest common subsequence. Texts that differ everywhere and are too long for it are replaced as a whole.
function between(a, b) {
  if (a.length * b.length > MOST) return [...all('minus', a), ...all('plus', b)];
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1)), found = [];
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  }
  let i = 0, j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) found.push(['', a[i++], j++]);
    else found.push(length[i + 1][j] >= length[i][j + 1] ? ['minus', a[i++]] : ['plus', b[j++]]);
  }
  return [...found, ...all('minus', a.slice(i)), ...all('plus', b.slice(j))];
}

// What is the same at the beginning and at the end needs no search.
function compared(a, b) {
  let from = 0, end = 0;
  while (from < a.length && a[from] === b[from]) from++;
  while (end > from - Math.min(a.length, b.length) && a.at(end - 1) === b.at(end - 1)) end--;
  const rest = a.length + end;
  return [...all('', a.slice(0, from)), ...between(a.slice(from, rest), b.slice(from, b.length + end)), ...all('', a.slice(rest))];
}

// The changed lines with some around them.
export function diff(former, present) {
  const lines = compared(former.split('\n'), present.split('\n'));
  const near = lines.map((_, n) => lines.slice(Math.max(0, n - AROUND), n + AROUND + 1).some(([kind]) => kind));
  const found = lines.flatMap((line, n) => near[n] ? [line] : near[n - 1] ? [['', '…']] : []);
  return [found.slice(0, ROWS).map(([kind, text]) => html`<span class="line ${kind}">${text || ' '}</span>`), more(found)];
}
