// Live updates: one stream per browser, because a browser opens only six connections to a server.
//
// One tab holds a lock and has the stream; it passes the events on to the others. Each tab says which topics it shows. A
// hidden tab leaves after a while. Without locks (a page over plain HTTP from another machine), each visible tab has a
// stream of its own.
import { address } from './api.js';

const EVENTS = ['head', 'inbox', 'standing', 'store', 'line', 'token', 'progress', 'reset'];
const SAY_EVERY = 10_000, FORGET_AFTER = 25_000, LEAVE_AFTER = 30_000;

export class Live {
  constructor(heard, linked) {
    this.heard = heard;  // called with the name of an event and its data
    this.linked = linked;  // called with whether the stream is open
    this.me = `${Date.now()}.${Math.random()}`;
    this.topics = [];
    this.others = new Map();  // tab → { topics, at }
    this.source = null;
    this.leads = false;
    this.away = null;
    this.channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('pausepoint ' + address('').href) : null;
    if (this.channel) this.channel.onmessage = ({ data }) => this.#received(data);
    document.addEventListener('visibilitychange', () => this.#looked());
    addEventListener('pagehide', () => this.#say({ from: this.me, topics: null }));
    setInterval(() => this.#keepUp(), SAY_EVERY);
    if (navigator.locks && this.channel) navigator.locks.request(this.channel.name, () => this.#lead());
    else this.leads = true;
  }

  // Say what this tab shows. The stream follows.
  follow(topics) {
    this.topics = topics;
    this.#keepUp();
  }

  #say(message) { this.channel?.postMessage(message); }

  #lead() {
    this.leads = true;
    this.#say({ ask: true });
    this.#keepUp();
    return new Promise(() => {});  // the browser releases the lock when the tab is closed
  }

  #looked() {
    clearTimeout(this.away);
    if (document.hidden) this.away = setTimeout(() => { this.left = true; this.#keepUp(); }, LEAVE_AFTER);
    else if (this.left) { this.left = false; this.#keepUp(); this.heard('reset', {}); }
  }

  #keepUp() {
    const own = this.left ? [] : this.topics;
    if (this.channel) this.#say({ from: this.me, topics: own });
    if (!this.leads) return;
    for (const [tab, { at }] of this.others) if (Date.now() - at > FORGET_AFTER) this.others.delete(tab);
    const wanted = new Set([...own, ...[...this.others.values()].flatMap((each) => each.topics)]);
    this.#open([...wanted].sort().join(','));
  }

  #open(topics) {
    if (topics === this.open && this.source?.readyState !== 2) return;
    const again = this.source !== null;
    this.source?.close();
    this.source = null;
    this.open = topics;
    if (!topics) return;
    const url = address('stream');
    url.searchParams.set('topics', topics);
    this.source = new EventSource(url);
    this.source.onopen = () => this.#tell('linked', true);
    this.source.onerror = () => this.#tell('linked', false);
    for (const name of EVENTS) this.source.addEventListener(name, ({ data }) => this.#tell(name, JSON.parse(data)));
    if (again) this.#tell('reset', {});  // a new stream does not know what the former one has sent
  }

  #tell(name, data) {
    this.#hear(name, data);
    this.#say({ name, data });
  }

  #hear(name, data) {
    if (name === 'linked') this.linked(data);
    else if (!this.left) this.heard(name, data);
  }

  #received(message) {
    if (message.name) return this.leads || this.#hear(message.name, message.data);
    if (message.ask) return this.#keepUp();
    if (message.topics?.length) this.others.set(message.from, { topics: message.topics, at: Date.now() });
    else this.others.delete(message.from);
    if (this.leads) this.#keepUpLater();
  }

  // Several tabs say their topics at once; one new stream is enough.
  #keepUpLater() {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.#keepUp(), 50);
  }
}
