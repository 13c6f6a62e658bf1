// The difference between two texts: lines as [kind, text], where '' is in both.
import { html } from './marks.js';
import { more, ROWS } from './shapes.js';

const AHEAD = 1000;

// How many lines of each are left out until the next one that is in both.
function gap(a, b, i, j) {
  for (let most = 1; most < AHEAD; most++) {
    for (let n = 0; n <= most; n++) if (a[i + n] === b[j + most - n]) return [n, most - n];
  }
  return [a.length, b.length];
}

function compared(a, b) {
  const found = [], all = (kind, lines) => lines.forEach((line) => found.push([kind, line]));
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    const [former, present] = a[i] === b[j] ? [0, 0] : gap(a, b, i, j);
    all('minus', a.slice(i, i += former));
    all('plus', b.slice(j, j += present));
    all('', a.slice(i, ++i));
    j++;
  }
  return found;
}

// The changed lines with some around them.
export function diff(former, present) {
  const lines = compared(former.split('\n'), present.split('\n'));
  const near = lines.map((_, n) => lines.slice(Math.max(0, n - 3), n + 4).some(([kind]) => kind));
  const found = lines.flatMap((line, n) => near[n] ? [line] : near[n - 1] ? [['', '…']] : []);
  return [found.slice(0, ROWS).map(([kind, text]) => html`<span class="line ${kind}">${text || ' '}</span>`), more(found)];
}
