// The tab Files: what people and steps have attached.
import { html } from './marks.js';
import { address, get, of, upload } from './api.js';
import { size, time } from './words.js';
import { table } from './shapes.js';

const path = ({ s }) => of(s.session_id) + '/files';

export const load = (d) => get(path(d));

async function add({ target }, d, page) {
  const chosen = [...target.files];
  target.value = '';
  for (const file of chosen) await page.act(() => upload(path(d), file), `${file.name} is uploaded.`);
}

export function view(d, page) {
  const row = (file) => html`<tr data-row><td><a class="mono" href=${address(`${path(d)}/${encodeURIComponent(file.file_id)}`)}
    download=${file.filename}>${file.filename}</a></td><td class="r num dim">${size(file.size_bytes)}</td><td
      class="opt r dim small">${time(file.created_at)}</td></tr>`;
  return html`${page.may('operator') ? html`<p class="pad"><label class="b">Upload files<input class="unseen" type="file" multiple
    @change=${(event) => add(event, d, page)}></label></p>` : ''}
    ${d.files.length ? table([['File'], ['Size', 'r'], ['Added', 'opt r']], d.files, 'file_id', row) :
      html`<p class="empty"><b>It has no files</b>A step reads them with <code>ctx.files</code>.</p>`}`;
}
