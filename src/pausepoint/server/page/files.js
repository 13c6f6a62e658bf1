// The tab Files: what people and steps have attached to the session.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { address, get, of, upload } from './api.js';
import { counted, size, time } from './words.js';

const ROWS = 200;

export const load = async (d) => ({ files: (await get(of(d.s.session_id) + '/files')).files });

async function add(event, d, page) {
  const chosen = [...event.target.files];
  event.target.value = '';
  for (const file of chosen) await page.act(() => upload(of(d.s.session_id) + '/files', file), (found) => found.reused ? `${file.name} was there already.` :
    `${file.name} is uploaded.`);
}

const row = (d, file) => html`<tr data-row><td><a class="mono" href=${address(`${of(d.s.session_id)}/files/${encodeURIComponent(file.file_id)}`)}
  download=${file.filename}>${file.filename}</a><div class="dim small clip">${file.content_type} · <span class="mono">${file.file_id}</span></div></td><td
    class="r num dim">${size(file.size_bytes)}</td><td class="opt r dim small">${time(file.created_at)}</td></tr>`;

export function view(d, page) {
  return html`${page.may('operator') ? html`<div class="row pad"><label class="b">Upload files<input class="unseen" type="file" multiple
    @change=${(event) => add(event, d, page)}></label><span class="dim small">A step reads them with <code>ctx.files</code>.</span></div>` : nothing}
    ${d.files.length ? html`<table><thead><tr><th>File</th><th class="r">Size</th><th
      class="opt r">Added</th></tr></thead><tbody>${repeat(d.files.slice(0, ROWS), (file) => file.file_id, (file) =>
        row(d, file))}</tbody></table>${d.files.length > ROWS ? html`<p class="small dim pad">${counted(d.files.length - ROWS, 'more file')}.</p>` :
          nothing}` : html`<p class="empty"><b>It has no files</b>People and steps can attach files to a session.</p>`}`;
}
