// The difference between two texts, line by line.
import { html } from './vendor/lit-html.js';
import { counted } from './words.js';

const MOST = 2_000_000, ROWS = 200, AROUND = 3;

// Lines as [kind, text]: ' ' is in both, '-' only in the former, '+' only in the present one.
export function lines(former, present) {
  const a = former.split('\n'), b = present.split('\n'), found = [];
  let from = 0, endA = a.length, endB = b.length;
  while (from < endA && from < endB && a[from] === b[from]) from++;
  while (endA > from && endB > from && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  const middle = between(a.slice(from, endA), b.slice(from, endB));
  for (const line of a.slice(0, from)) found.push([' ', line]);
  return [...found, ...middle, ...a.slice(endA).map((line) => [' ', line])];
}

// The longest common subsequence. Texts that differ everywhere and are too long for it are replaced as a whole.
function between(a, b) {
  if (a.length * b.length > MOST) return [...a.map((line) => ['-', line]), ...b.map((line) => ['+', line])];
  const width = b.length + 1, length = new Uint16Array((a.length + 1) * width), found = [];
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i * width + j] = a[i] === b[j] ? length[(i + 1) * width + j + 1] + 1 : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
    }
  }
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { found.push([' ', a[i++]]); j++; }
    else if (j >= b.length || (i < a.length && length[(i + 1) * width + j] >= length[i * width + j + 1])) found.push(['-', a[i++]]);
    else found.push(['+', b[j++]]);
  }
  return found;
}

// The changed lines with some around them. Long unchanged parts are counted only.
function folded(all) {
  const near = new Uint8Array(all.length), found = [];
  all.forEach(([kind], n) => { if (kind !== ' ') near.fill(1, Math.max(0, n - AROUND), n + AROUND + 1); });
  let left = 0;
  all.forEach((line, n) => {
    if (near[n]) { if (left) found.push(['…', counted(left, 'line')]); left = 0; found.push(line); } else left++;
  });
  return left && found.length ? [...found, ['…', counted(left, 'line')]] : found;
}

const CLASSES = { '-': 'minus', '+': 'plus', '…': 'faint' }, NAMES = { '-': 'removed', '+': 'added' };

export function diff(former, present) {
  const found = folded(lines(former, present));
  const row = ([kind, text]) => html`<span class="line ${CLASSES[kind] ?? ''}">${NAMES[kind] ? html`<span class="unseen">${NAMES[kind]}: </span>` :
    ''}${kind === '…' ? `… ${text} unchanged` : text || ' '}</span>`;
  return html`${found.slice(0, ROWS).map(row)}${found.length > ROWS ? html`<span class="line faint">… ${counted(found.length - ROWS, 'more line')}</span>` :
    ''}`;
}
