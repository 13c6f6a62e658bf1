// The tab Output: what the steps stream, such as the tokens of a model.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';

const MOST = 64 * 1024, BLOCKS = 100;

let kept = { blocks: [] };  // of one session; a block is of one source

// An item that comes again, after a new connection, is left out.
export function heard({ session_id, agent_name, event_type, data: { n, source, sources, operation, attempt, text = '(bytes)\n', lost } }) {
  if (kept.id !== session_id) kept = { id: session_id, last: 0, blocks: [] };
  if (n <= kept.last) return true;
  kept.last = n;
  if (event_type === 'stream.restarted') kept.blocks = kept.blocks.filter((each) => !sources.includes(each.source));
  else if (event_type === 'stream.gap') add(n, null, `${lost} parts were lost`, '');
  else add(n, source, [agent_name, operation, attempt > 1 && `attempt ${attempt}`].filter(Boolean).join(' · '), text);
  return true;
}

function add(n, source, name, text) {
  let last = kept.blocks.at(-1);
  if (last?.name !== name || last.source !== source) kept.blocks.push(last = { n, source, name, text: '' });
  last.text = (last.text + text).slice(-MOST);
  kept.blocks = kept.blocks.slice(-BLOCKS);
}

export function view({ s }) {
  if (kept.id !== s.session_id || !kept.blocks.length) return html`<p class="empty"><b>No output</b>
    Text that a step sends with <code>ctx.stream</code> appears here at once.</p>`;
  return html`<div class="scroll tail" tabindex="0" role="log" aria-label="Output"><div>${repeat(kept.blocks, (each) => each.n, (each) =>
    html`<span class="dim small">${each.name}</span><pre class="stream">${each.text}</pre>`)}</div></div>`;
}
