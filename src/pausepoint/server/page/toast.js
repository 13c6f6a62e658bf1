// A message at the bottom of the page, which a screen reader speaks too.
import { marked } from './marks.js';

export function tell(text, bad = false) {
  document.getElementById('live').textContent = marked(text);
  document.querySelector('.toast')?.remove();
  const toast = Object.assign(document.createElement('div'), { className: `toast ${bad ? 'bad' : ''}`, textContent: marked(text) });
  document.body.append(toast);
  setTimeout(() => toast.remove(), bad ? 9000 : 4500);
}
