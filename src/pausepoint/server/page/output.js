// The tab Output: what the steps stream, such as the tokens of a model.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';

const MOST = 64 * 1024, BLOCKS = 100;

let kept = { blocks: [] };  // of one session; a block is of one source

// An item that comes again, after a new connection, is left out.
export function heard({ session_id, agent_name, event_type, data: { n, kind, source, sources, operation, attempt, text = '(bytes)\n', lost } }) {
  if (kept.id !== session_id) kept = { id: session_id, last: 0, blocks: [] };
  if (n <= kept.last) return true;
  kept.last = n;
  if (event_type === 'stream.restarted') kept.blocks = kept.blocks.filter((each) => each.isLog || !sources.includes(each.source));  // a log tells what failed
  else if (event_type === 'stream.gap') add(n, null, `${lost} parts were lost`, '');
  else add(n, source, [agent_name, named(operation), kind === 'log' && 'log', attempt > 1 && `attempt ${attempt}`].filter(Boolean).join(' · '), text, kind === 'log');
  return true;
}

function add(n, source, name, text, isLog = false) {
  let last = kept.blocks.at(-1);
  if (last?.name !== name || last.source !== source) kept.blocks.push(last = { n, source, name, isLog, text: '' });
  last.text = (last.text + text).slice(-MOST);
  kept.blocks = kept.blocks.slice(-BLOCKS);
}

// The last name in an operation's id: that of its function, and its key.
const named = (id = '') => id.split('/').at(-1).replace(/~.*/, '').replace(/^map:/, '').replace(/\["?(.*?)"?\]$/, ' $1');

export function view({ s }) {
  if (kept.id !== s.session_id || !kept.blocks.length) return html`<p class="empty"><b>No output</b>
    Text that a step sends with <code>ctx.stream</code>, and what it logs, appears here at once.</p>`;
  return html`<div class="scroll tail" tabindex="0" role="log" aria-label="Output"><div>${repeat(kept.blocks, (each) => each.n, (each) =>
    html`<span class="dim small">${each.name}</span><pre class="stream">${each.text}</pre>`)}</div></div>`;
}
