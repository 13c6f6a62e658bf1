// A message at the bottom of the page, which a screen reader speaks too.
export function tell(text, bad = false) {
  document.getElementById('live').textContent = text;
  document.querySelector('.toast')?.remove();
  const toast = Object.assign(document.createElement('div'), { className: `toast ${bad ? 'bad' : ''}`, textContent: text });
  document.body.append(toast);
  setTimeout(() => toast.remove(), bad ? 9000 : 4500);
}
