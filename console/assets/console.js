// What htmx has no attribute for: keys, the theme, times that pass, and the banner while the server is away.
(() => {
  'use strict';
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // --- A link that signs in or opens a conversation: its secret stands behind #, which no browser sends.
  const code = $('input#code');
  const signIn = () => {
    if (!code || location.hash.length <= 1) return;
    code.value = location.hash.slice(1);
    history.replaceState(null, '', location.pathname + location.search);
    if (!('press' in code.form.dataset)) return code.form.requestSubmit();
    // Not before its human presses the button.
    code.type = 'hidden';
    for (const label of code.labels ?? $$('label', code.form)) label.hidden = true;
  };
  // A link that is opened where the form stands already loads nothing anew.
  addEventListener('hashchange', signIn);
  signIn();

  // --- Times. The words are the server's, in parts.rs.
  const relative = (at, now) => {
    const seconds = Math.trunc(Math.abs(now - at) / 1000);
    const ahead = at > now;
    if (!ahead && seconds < 10) return 'just now';
    const text =
      seconds < 60 ? `${seconds} s`
      : seconds < 3600 ? `${Math.trunc(seconds / 60)} min`
      : seconds < 86400 ? `${Math.trunc(seconds / 3600)} h`
      : `${Math.trunc(seconds / 86400)} d`;
    return ahead ? `in ${text}` : `${text} ago`;
  };
  const remaining = (ms) => {
    const s = Math.max(0, Math.trunc(ms / 1000));
    return s < 60 ? `${s} s left`
      : s < 3600 ? `${Math.trunc(s / 60)} min ${s % 60} s left`
      : s < 86400 ? `${Math.trunc(s / 3600)} h ${Math.trunc((s % 3600) / 60)} min left`
      : `${Math.trunc(s / 86400)} d ${Math.trunc((s % 86400) / 3600)} h left`;
  };
  const tell = (time, words) => { if (time.textContent !== words) time.textContent = words; };
  const tick = () => {
    for (const time of $$('time[data-relative]')) {
      const at = Date.parse(time.dateTime);
      if (!Number.isNaN(at)) tell(time, relative(at, Date.now()));
    }
  };
  // A moment is written in UTC, and shown in the browser's time zone, in the same parts.
  const inZone = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().replace('T', ' ').slice(0, -1);
  const localize = () => {
    for (const part of $$('[data-local]')) {
      const at = Date.parse(part.dataset.at ?? part.dateTime);
      const from = 'YYYY-MM-DD HH:mm:ss.SSS'.indexOf(part.dataset.local);
      if (!Number.isNaN(at) && from >= 0) tell(part, inZone(at).slice(from, from + part.dataset.local.length));
    }
    for (const zone of $$('[data-zone]')) tell(zone, `your time zone (${Intl.DateTimeFormat().resolvedOptions().timeZone})`);
  };
  const countDown = () => {
    for (const time of $$('time[data-countdown]')) {
      const left = Date.parse(time.dateTime) - Date.now();
      if (Number.isNaN(left)) continue;
      tell(time, remaining(left));
      time.classList.toggle('near', left < 300_000);
      time.classList.toggle('soon', left < 60_000);
    }
  };
  localize();
  setInterval(tick, 10_000);
  setInterval(countDown, 1_000);

  // --- That a person opened this page keeps the agents' own work going (D12): said once it is seen, once an hour at most.
  const ATTEND_EVERY = 3_600_000;
  const attend = () => {
    const forms = $('#sign-out input[name=forms]')?.value;
    if (!forms || document.visibilityState !== 'visible') return;
    document.removeEventListener('visibilitychange', attend);
    // Beside /sign-out, below the path of this server; another one may have another path of the same host.
    const to = new URL('attend', $('#sign-out').action).href;
    const key = `lastword-attended ${to}`;
    try {
      if (Date.now() - Number(localStorage.getItem(key)) < ATTEND_EVERY) return;
      localStorage.setItem(key, String(Date.now()));
    } catch { /* without storage each page says it; the server counts one an hour */ }
    fetch(to, { method: 'POST', body: new URLSearchParams({ forms }) }).catch(() => {});
  };
  document.addEventListener('visibilitychange', attend);
  attend();

  // --- How many decisions wait, in the window's title.
  const retitle = () => {
    const waiting = Number($('#waiting')?.dataset.waiting ?? 0);
    const name = document.title.replace(/^\(\d+\) /, '');
    const title = waiting ? `(${waiting}) ${name}` : name;
    if (document.title !== title) document.title = title;
  };

  // --- Notifications of the browser, where the human has switched them on: how many wait, and no text of agents.
  const bell = $('[data-notify]');
  // Browsers of phones have none that a page alone could raise.
  const able = 'Notification' in window && window.isSecureContext && !matchMedia('(pointer: coarse)').matches;
  const kept = () => { try { return localStorage.getItem('lastword-notify') === 'on'; } catch { return false; } };
  const keep = (on) => { try { localStorage.setItem('lastword-notify', on ? 'on' : 'off'); } catch { /* not without storage */ } };
  const notifies = () => able && Notification.permission === 'granted' && kept();
  const ring = (words = `Notify: ${notifies() ? 'on' : 'off'}`) => {
    if (!bell) return;
    bell.hidden = !able;
    bell.setAttribute('aria-pressed', String(notifies()));
    bell.textContent = words;
  };
  const toggleNotify = async () => {
    if (notifies()) keep(false);
    else if ((await Notification.requestPermission()) === 'granted') keep(true);
    else return ring('Notify: blocked by the browser');
    ring();
  };
  ring();
  let known = Number($('#waiting')?.dataset.waiting ?? 0);
  const notify = () => {
    const waiting = Number($('#waiting')?.dataset.waiting ?? 0);
    const more = waiting > known;
    known = waiting;
    if (!more || !document.hidden || !notifies()) return;
    // Several pages that are open say it once.
    const shown = new Notification('Lastword', { body: $('#waiting').dataset.words, tag: `lastword-${waiting}` });
    shown.onclick = () => { window.focus(); shown.close(); };
  };
  document.addEventListener('htmx:after:swap', () => { tick(); localize(); countDown(); retitle(); notify(); });
  document.addEventListener('htmx:finally:request', () => { retitle(); notify(); });
  retitle();

  // --- Theme.
  const toggleTheme = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    try { localStorage.setItem('lastword-theme', root.dataset.theme); } catch { /* then for this page only */ }
  };

  // --- What changed reloads the parts of the page that show it: each at most once in its pace, and all of them together at
  // most twice in any second.
  const PACE = 1_000;
  const GAP = 500;
  // A request that has not ended by then is taken for lost.
  const LOST = 10_000;
  const reloads = { due: new Map(), last: new Map(), flying: new Map(), begun: -GAP, timer: null };
  const reloadAt = (id) => Math.max(reloads.due.get(id), (reloads.flying.get(id) ?? -LOST) + LOST, reloads.begun + GAP);
  const plan = () => {
    clearTimeout(reloads.timer);
    const [first] = [...reloads.due.keys()].sort((a, b) => reloadAt(a) - reloadAt(b) || reloads.due.get(a) - reloads.due.get(b));
    if (first === undefined) return;
    reloads.timer = setTimeout(() => {
      const now = performance.now();
      // Timers may be early by a part of a millisecond.
      if (now < reloadAt(first)) return plan();
      reloads.due.delete(first);
      // The part may have been replaced meanwhile.
      const part = document.getElementById(first);
      if (part) {
        reloads.last.set(first, now);
        reloads.begun = now;
        if (first === 'main' && steady.engaged()) steady.hold(part, () => decided?.id);
        else htmx.trigger(part, 'lw-changed');
      }
      plan();
    }, Math.max(0, Math.ceil(reloadAt(first) - performance.now())));
  };
  const reload = (part) => {
    if (reloads.due.has(part.id)) return;
    reloads.due.set(part.id, Math.max(performance.now(), (reloads.last.get(part.id) ?? -PACE) + PACE));
    plan();
  };
  // While a part is on its way, another request for it would wait for the first one and begin when that ends.
  document.addEventListener('htmx:before:request', ({ detail }) => {
    const part = detail.ctx.sourceElement;
    if (!part.matches?.('[data-topics]')) return;
    // It begins now, a little after it was asked for.
    reloads.begun = performance.now();
    reloads.flying.set(part.id, reloads.begun);
  });
  document.addEventListener('htmx:finally:request', ({ detail }) => {
    if (reloads.flying.delete(detail.ctx.sourceElement.id)) plan();
  });
  const changed = (topic) => {
    for (const part of $$('[data-topics]')) {
      if (topic === 'lw-all' || part.dataset.topics.split(' ').includes(topic)) reload(part);
    }
  };
  // What the human's own form changed is in its response.
  document.addEventListener('htmx:finally:request', ({ detail }) => {
    const topics = detail.ctx.hx?.trigger;
    if (topics) topics.split(', ').forEach(changed);
  });

  // --- Hints of what others changed. The banner says when they stay away.
  const banner = $('#banner');
  const live = $('#live');
  let away = null;
  const say = (text) => { if (banner) { banner.textContent = text; banner.hidden = !text; } };
  const settle = (text) => { clearTimeout(away); away = null; say(text); };
  const told = {
    // A moment's break is nobody's business.
    away: () => { away ??= setTimeout(() => say('The server is away. Reconnecting…'), 400); },
    live: () => {
      settle('');
      // It says that the server is away.
      $('#flash .unheard p')?.replaceChildren('The server is back. What you sent may not have been done: look, and send it again.');
      $('#flash .unheard')?.classList.remove('unheard');
    },
    'signed-out': () => {
      settle('You are signed out. What you typed is still here. ');
      const link = document.createElement('a');
      Object.assign(link, { href: new URL('sign-in', $('#sign-out').action).href, target: '_blank', textContent: 'Sign in again' });
      banner?.append(link);
    },
  };
  const follow = (port) => {
    port.onmessage = ({ data: { topic, state } }) => {
      if (topic) changed(topic);
      if (state) { live.dataset.state = state; told[state](); }
    };
    port.postMessage({ after: Number(live.dataset.after), live: new URL(live.dataset.live, location).href });
    addEventListener('pagehide', () => port.postMessage('leave'));
    // Back from the browser's cache, where a page hears nothing: it asks for all that it shows.
    addEventListener('pageshow', (event) => { if (event.persisted) port.postMessage({ after: 0 }); });
  };
  const alone = () => {
    const { port1, port2 } = new MessageChannel();
    hints.serve(port1);
    follow(port2);
  };
  const together = () => {
    try {
      const worker = new SharedWorker(live.dataset.worker);
      worker.onerror = alone;
      follow(worker.port);
    } catch {
      alone();
    }
  };
  // A hint that came before htmx has looked at the page would be heard by nobody.
  if (live) document.addEventListener('htmx:after:process', together, { once: true });

  // --- Who signs out does so in all tabs of the browser: none shows any longer what it showed.
  const signOut = $('#sign-out');
  if (signOut && 'BroadcastChannel' in window) {
    const tabs = new BroadcastChannel(`lastword-sign-out ${signOut.action}`);
    tabs.onmessage = () => location.reload();
    document.addEventListener('htmx:finally:request', ({ detail: { ctx: { sourceElement, response } } }) => {
      if (sourceElement === signOut && response?.status < 400) tabs.postMessage('');
    });
  }

  // Says above the page what was not done.
  const alarm = (text, kind) => {
    const note = document.createElement('div');
    note.className = `flash bad ${kind}`;
    note.setAttribute('role', 'alert');
    const words = document.createElement('p');
    words.textContent = text;
    note.append(words);
    $('#flash')?.replaceChildren(note);
  };

  // A form that reached nobody: said where its outcome would have been, and what was typed stays.
  document.addEventListener('htmx:error', (event) => {
    const flash = $('#flash');
    if (!flash || !event.target.closest?.('form[hx-post]')) return;
    alarm('The server did not answer, so this may not have been done. What you typed is still here: send it again once the server is back.', 'unheard');
  });

  // --- While one decision of a card is on its way, no other one of it can be sent.
  const decisions = (form) => $$('form[hx-post] button', form.closest('.card'));
  document.addEventListener('htmx:before:request', ({ detail: { ctx: { sourceElement: form } } }) => {
    if (form.matches?.('.card form[hx-post]')) for (const button of decisions(form)) if (!button.disabled) { button.disabled = true; button.dataset.waits = ''; }
  });
  document.addEventListener('htmx:finally:request', () => {
    for (const button of $$('button[data-waits]')) { button.disabled = false; delete button.dataset.waits; }
  });

  // --- What is scrolled to is not covered by the bar, nor by the messages below it, which come and go.
  const covered = () => $('#top')?.offsetHeight || $('#notices')?.offsetHeight || 0;
  const covers = new ResizeObserver(() => { document.documentElement.style.setProperty('--bar', `${covered()}px`); });
  for (const part of $$('#top, #notices')) covers.observe(part);

  // --- After a decision the focus goes to the entry that took its place.
  let decided = null;
  document.addEventListener('htmx:before:request', (event) => {
    const form = event.detail.ctx.sourceElement;
    const entry = form.matches?.('form[hx-post]') && form.closest('[data-row]');
    if (entry) decided = { id: entry.id, at: $$('[data-row]', $('#main')).indexOf(entry) };
  });
  document.addEventListener('htmx:after:swap', () => {
    if (!decided || document.getElementById(decided.id)) return;
    const { at } = decided;
    decided = null;
    const focused = document.activeElement;
    if (focused && focused !== document.body && focused.isConnected) return;
    const left = $$('[data-row]', $('#main'));
    const entry = left[Math.min(at, left.length - 1)] ?? $('#main');
    entry?.focus({ preventScroll: true });
    // Of what has the focus, the beginning is in the window.
    const top = entry?.getBoundingClientRect().top;
    if (entry?.matches('[data-row]') && (top < covered() || top > innerHeight - 120)) entry.scrollIntoView();
  });

  // --- Where there is room for two panes, the list says which decision the right one shows.
  let chosen = location.hash.slice(1);
  const mark = () => {
    for (const line of $$('.panes > .index a')) {
      if (line.hash === `#${chosen}`) line.setAttribute('aria-current', 'true');
      else line.removeAttribute('aria-current');
    }
  };
  addEventListener('hashchange', () => { chosen = location.hash.slice(1); mark(); });
  document.addEventListener('focusin', ({ target }) => {
    const card = target.closest('.panes > .cards > [data-row]');
    if (card) { chosen = card.id; mark(); }
  });
  document.addEventListener('htmx:after:swap', mark);
  mark();

  // The second click of a double click would fall on what took the place of the first one's button.
  document.addEventListener('click', (event) => {
    if (event.detail > 1 && event.target.closest?.('form[hx-post] button')) event.preventDefault();
  }, true);

  // A film that is unfolded again begins again, as a picture of its own.
  document.addEventListener('toggle', ({ target }) => {
    const film = target.id === 'film' && target.open && $('img', target);
    if (film?.naturalWidth) film.src = `${film.src.split('?')[0]}?${Date.now()}`;
  }, true);

  // A filter that is chosen applies at once.
  document.addEventListener('change', (event) => {
    const form = event.target.matches?.('select') && event.target.closest('form[data-filters]');
    if (form) form.requestSubmit();
  });

  // --- Windows.
  const open = (id, find = '') => {
    const dialog = document.getElementById(id);
    if (!dialog || dialog.open) return;
    // What was asked at the last opening is out of date; a button of it that has the focus would go when the answer comes.
    const question = $('[data-question]', dialog);
    question?.replaceChildren();
    dialog.showModal();
    if (id === 'palette') {
      const query = $('#palette-query');
      query.value = find;
      query.focus();
      htmx.trigger(query, 'lw-palette');
    }
    if (question) htmx.trigger(question, 'lw-open');
  };
  document.addEventListener('click', (event) => {
    const opener = event.target.closest('[data-open]');
    if (opener) {
      // Some of them are links, for where no script runs.
      event.preventDefault();
      open(opener.dataset.open, opener.dataset.find);
    }
    if (event.target.closest('[data-theme-toggle]')) toggleTheme();
    if (event.target.closest('[data-notify]')) toggleNotify();
    event.target.closest('[data-dismiss]')?.closest('.flash')?.remove();
    // A click beside a window leaves it.
    if (event.target instanceof HTMLDialogElement) event.target.close();
  });

  // A form that has just come into the page and is sent before htmx has looked at it would be sent without script, which
  // leaves the page.
  document.addEventListener('submit', (event) => {
    const form = event.target;
    if (!form.hasAttribute('hx-post') || form.hasAttribute('data-htmx-powered')) return;
    event.preventDefault();
    event.stopPropagation();
    htmx.process(form);
    // While it is being sent, a form can't be sent again.
    setTimeout(() => form.requestSubmit(event.submitter));
  }, true);

  // A form that was done says no more of what was refused before, and shows what holds now: nothing that was typed is sent
  // twice. What it made is shown once, and stays.
  document.addEventListener('htmx:finally:request', (event) => {
    const { sourceElement, response } = event.detail.ctx;
    if (!(response?.status < 400) || !sourceElement.matches?.('form[hx-post]')) return;
    const said = $('[data-said]', sourceElement);
    // What an edit would change is shown beside it, and it goes on.
    if (!said && sourceElement.getAttribute('hx-target') !== '#flash') return;
    if (said && !$('.made', said)) said.replaceChildren();
    sourceElement.reset();
  });

  // --- What is shown once has a button that copies it, where the browser has a clipboard.
  const offerCopies = () => {
    if (!navigator.clipboard) return;
    for (const text of $$('.made pre.rule:not(:has(+ .copy))')) {
      const button = Object.assign(document.createElement('button'), { type: 'button', className: 'copy', textContent: 'Copy' });
      button.addEventListener('click', async () => {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = 'Copied';
      });
      text.after(button);
    }
  };
  document.addEventListener('htmx:after:swap', offerCopies);
  offerCopies();

  // --- A form asks the browser for something, and is sent again with it.
  const plain = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
  const raw = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (letter) => letter.charCodeAt(0));
  const ways = {
    // The key is that of the server, by which the push service knows it.
    push: async (key) => {
      if (!('PushManager' in window)) throw new Error('This browser has no notifications here. On an iPhone or iPad, add the console to the home screen first.');
      if ((await Notification.requestPermission()) !== 'granted') throw new Error('The browser blocks notifications of this site: allow them in its settings.');
      const worker = await navigator.serviceWorker.register(new URL('notifier.js', $('#sign-out').action));
      await navigator.serviceWorker.ready;
      const subscription = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: raw(key) });
      return ['subscription', { endpoint: subscription.endpoint, p256dh: plain(subscription.getKey('p256dh')), auth: plain(subscription.getKey('auth')) }];
    },
  };
  const key = (id) => ({ type: 'public-key', id: raw(id) });
  Object.assign(ways, {
    // A passkey that there is signs for what the form says.
    get: async ({ nonce, challenge, site, allow }) => {
      const { id, response } = await navigator.credentials.get({
        publicKey: { challenge: raw(challenge), rpId: site, userVerification: 'required', allowCredentials: allow.map(key) },
      });
      const [client_data, authenticator_data, signature] = [response.clientDataJSON, response.authenticatorData, response.signature].map(plain);
      return ['passkey', { nonce, id, client_data, authenticator_data, signature }];
    },
    create: async ({ nonce, challenge, site, user, exclude }) => {
      const { id, response } = await navigator.credentials.create({
        publicKey: {
          challenge: raw(challenge), rp: { id: site, name: 'Lastword' }, user: { ...user, id: raw(user.id) },
          pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: 'public-key', alg })), excludeCredentials: exclude.map(key),
          authenticatorSelection: { userVerification: 'required' }, attestation: 'none',
        },
      });
      const [client_data, authenticator_data, made] = [response.clientDataJSON, response.getAuthenticatorData(), response.getPublicKey()].map(plain);
      return ['created', { nonce, id, client_data, authenticator_data, key: made, algorithm: response.getPublicKeyAlgorithm() }];
    },
  });
  // What a browser says of its failures is for developers.
  const failures = {
    AbortError: 'The browser could not reach its push service, or gave up. Try again later, or in another browser.',
    NotAllowedError: 'Nothing was done: it was declined in the browser, or took too long. Try again.',
    InvalidStateError: 'This device has one already, or the browser holds one for another server. Remove it, then try again.',
    NotSupportedError: 'This browser or device can\'t do this. Try another one.',
    SecurityError: 'The browser allows this at the console\'s own address over https alone.',
    other: 'The browser could not do this. Try again, or in another browser.',
  };
  const answer = async (form, asked) => {
    const [[way, what]] = Object.entries(JSON.parse(asked));
    try {
      const [name, value] = await ways[way](what);
      const field = Object.assign(document.createElement('input'), { type: 'hidden', name, value: JSON.stringify(value) });
      field.dataset.answer = '';
      form.append(field);
      form.requestSubmit();
    } catch (error) {
      const said = $('[data-said]', form) ?? $('#flash');
      const textContent = error instanceof DOMException ? failures[error.name] ?? failures.other : error.message;
      said.replaceChildren(Object.assign(document.createElement('p'), { textContent }));
    }
  };
  document.addEventListener('htmx:finally:request', ({ detail: { ctx: { sourceElement, response } } }) => {
    for (const field of $$('[data-answer]', sourceElement)) field.remove();
    const asked = response?.headers?.get('lastword-asks');
    if (asked) answer(sourceElement, asked);
  });
  // Some browsers ask for leave in the very press alone.
  document.addEventListener('click', ({ target }) => {
    if (target.closest('[data-permission]') && 'Notification' in window && Notification.permission === 'default') Notification.requestPermission();
  });

  // What came of a form in the window is told on the page below. Nothing else closes it.
  document.addEventListener('htmx:finally:request', (event) => {
    event.detail.ctx.sourceElement.closest?.('[data-question] form')?.closest('dialog').close();
  });
  const unasked = (event) => {
    if (!event.target.matches?.('[data-question]')) return;
    event.target.textContent = 'The server did not answer, or you are signed out. Reload this page.';
  };
  document.addEventListener('htmx:error', unasked);
  document.addEventListener('htmx:response:error', unasked);

  // --- A conversation opens beside the list where there is room, and on its own page otherwise.
  const roomy = matchMedia('(min-width: 1400px)');
  document.addEventListener('click', (event) => {
    const link = event.target.closest('[data-beside] .row a');
    const list = link?.closest('[data-beside]').dataset.beside;
    const below = `${list?.split('?')[0]}/`;
    const elsewhere = event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    if (!link?.getAttribute('href').startsWith(below) || elsewhere || !roomy.matches) return;
    event.preventDefault();
    const open = `open=${link.getAttribute('href').slice(below.length)}`;
    const url = `${list}${list.endsWith('?') ? '' : '&'}${open}`;
    htmx.ajax('GET', url, { target: '#main', swap: 'outerMorph' }).then(() => history.replaceState(null, '', url));
  });

  // --- The lines of a held call that are folded: the button that approves it says how many.
  const folds = (card) => $$('.call details.rest:not([open])', card);
  const count = () => {
    for (const button of $$('[data-approve]')) {
      const lines = folds(button.closest('.card')).reduce((sum, fold) => sum + Number(fold.dataset.lines), 0);
      const words = `Approve ${button.dataset.approve}${lines ? `, ${lines} ${lines === 1 ? 'line' : 'lines'} unseen` : ''}`;
      if (button.textContent !== words) button.textContent = words;
    }
  };
  // It doesn't bubble.
  document.addEventListener('toggle', count, true);
  document.addEventListener('htmx:after:swap', count);
  count();
  // Unfolds them, and goes to the first of them.
  const unfold = (card) => {
    const folded = folds(card);
    for (const fold of folded) fold.open = true;
    const first = folded[0] && $('[tabindex]', folded[0]);
    first?.focus({ preventScroll: true });
    // With the last lines before it.
    if (first) scrollBy(0, folded[0].getBoundingClientRect().top - innerHeight / 3);
    count();
    return Boolean(first);
  };
  // What was typed in the card is no part of what its first button approves. It is shown, and nothing is approved.
  const differs = (field) => (field.matches('select') ? [...field.options].some((option) => option.selected !== option.defaultSelected) : field.value !== field.defaultValue);
  const unsent = (card) => {
    const field = $$('form[hx-post] :is(textarea, select, input:not([type="hidden"], [type="checkbox"]))', card).find((field) => !$('[data-approve]', field.form) && differs(field));
    if (!field) return false;
    for (let fold = field.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true;
    field.focus();
    alarm('Nothing was approved: what you typed in this card would be left out. Send it by the button beside it, or undo it first.', 'unsent');
    return true;
  };
  // What is approved is shown first, by a press of its own.
  const shown = (card) => unsent(card) || unfold(card);
  steady.onApprove(shown);

  // --- A link into a fold unfolds what it leads to. One to a message on another page of its history leads to that page.
  const arrive = () => {
    const id = location.hash.slice(1);
    if (!id || code) return;
    const target = document.getElementById(id);
    if (target) {
      const folds = [];
      for (let fold = target.closest('details'); fold; fold = fold.parentElement.closest('details')) folds.push(fold);
      for (const fold of folds) fold.open = true;
      if (folds.length) target.scrollIntoView();
      return;
    }
    const [, seq] = /^(?:msg|line)-(\d+)$/.exec(id) ?? [];
    if (!seq || !/\/conversations\/[^/]+$/.test(location.pathname)) return;
    const url = new URL(location);
    if (url.searchParams.get('at') === `msg-${seq}`) return;
    for (const place of ['before', 'after']) url.searchParams.delete(place);
    url.searchParams.set('at', `msg-${seq}`);
    location.replace(url);
  };
  addEventListener('hashchange', arrive);
  arrive();

  // --- The waterfall plays the history: what began after the moment shown is dimmed.
  const scrub = (range) => {
    const rows = $('.waterfall svg.rows');
    if (!rows) return;
    const x = (Number(range.value) / 1000) * rows.width.baseVal.value;
    const cursor = $('.cursor', rows);
    cursor.setAttribute('x1', x);
    cursor.setAttribute('x2', x);
    for (const part of $$('[data-x]', rows)) part.classList.toggle('later', Number(part.dataset.x) > x);
  };
  let playing = 0;
  const play = () => {
    const range = $('[data-scrub]');
    cancelAnimationFrame(playing);
    const begin = performance.now();
    const step = (now) => {
      const shown = Math.min(1, (now - begin) / 8_000);
      range.value = String(Math.round(shown * 1000));
      scrub(range);
      if (shown < 1 && range.isConnected) playing = requestAnimationFrame(step);
    };
    playing = requestAnimationFrame(step);
  };
  const offerScrub = () => { for (const label of $$('.scrub')) label.hidden = false; };
  document.addEventListener('input', (event) => { if (event.target.matches('[data-scrub]')) { cancelAnimationFrame(playing); scrub(event.target); } });
  document.addEventListener('click', (event) => { if (event.target.closest('[data-play]')) play(); });
  document.addEventListener('htmx:after:swap', offerScrub);
  offerScrub();

  // --- Keys.
  const rows = () => $$('[data-row]', $('#main') ?? document);
  const row = () => document.activeElement?.closest?.('[data-row]');
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(row());
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
    const entry = all[next];
    entry.focus({ preventScroll: true });
    // Of one that is higher than the window, the head is shown.
    entry.scrollIntoView({ block: entry.offsetHeight > innerHeight - covered() - 24 ? 'start' : 'nearest' });
  };
  const within = (key) => {
    const entry = row() ?? rows()[0] ?? document;
    const target = $(`[data-key~="${key}"]`, entry);
    // What is approved is shown first, by a keystroke of its own.
    if (target?.matches('[data-approve]') && shown(entry)) return;
    target?.focus();
  };
  const choose = (by) => {
    const links = $$('#palette-list a');
    const at = links.indexOf(document.activeElement);
    const next = at + by;
    if (next < 0) $('#palette-query').focus();
    else links[Math.min(next, links.length - 1)]?.focus();
  };
  const inPalette = (event) => {
    if (event.key === 'ArrowDown') choose(1);
    else if (event.key === 'ArrowUp') choose(-1);
    else if (event.key === 'Enter' && event.target.id === 'palette-query') $('#palette-list a')?.click();
    // The browser would clear the field first.
    else if (event.key === 'Escape') $('#palette').close();
    else return;
    event.preventDefault();
  };
  const searching = () => {
    const field = $('[data-search]');
    if (field) field.focus();
    else open('palette');
  };
  const composing = () => {
    const field = $('[data-compose]');
    if (field) field.focus();
    else $('[data-compose-page]')?.click();
  };
  let leader = 0;
  const press = (event) => {
    const key = event.key;
    // A key that is held down takes one step to an approval.
    if (key === 'a' && event.repeat) return;
    const led = Date.now() - leader < 1_500;
    leader = 0;
    if (led) {
      const link = $(`nav [data-go="${CSS.escape(key)}"]`);
      if (link) { link.click(); event.preventDefault(); }
      return;
    }
    const focused = document.activeElement;
    if (key === 'g') leader = Date.now();
    else if (key === 'j') move(1);
    else if (key === 'k') move(-1);
    else if (key === 'a' || key === 'r' || key === 'l') within(key);
    else if (key === '/') searching();
    else if (key === 'c') composing();
    else if (key === '?') open('help');
    else if (key === 'Enter' && focused?.matches?.('[data-row]')) ($('a[data-open-row]', focused) ?? $('a', focused))?.click();
    else return;
    event.preventDefault();
  };
  document.addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      open('palette');
      return;
    }
    const typing = event.target.closest?.('input:not([type=checkbox]), textarea, select, [contenteditable]');
    if (typing?.form && event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      // What is typed is sent as words: a button that stands for a choice of its own, as a lift does, is none of it.
      typing.form.requestSubmit($('button.main:not([name])', typing.form) ?? undefined);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if ($('#palette')?.open) { inPalette(event); return; }
    if ($('dialog[open]')) return;
    if (typing) {
      if (event.key === 'Escape') (row() ?? $('#main'))?.focus();
      return;
    }
    press(event);
  });
})();
