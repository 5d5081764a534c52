// What htmx has no attribute for: keys, the theme, times that pass, and the banner while the server is away.
(() => {
  'use strict';
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // --- Signing in with a link: its secret stands behind #, which no browser sends.
  const code = $('#sign-in #code');
  const signIn = () => {
    if (!code || location.hash.length <= 1) return;
    code.value = location.hash.slice(1);
    history.replaceState(null, '', location.pathname + location.search);
    $('#sign-in').requestSubmit();
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
  const tick = () => {
    for (const time of $$('time[data-relative]')) {
      const at = Date.parse(time.dateTime);
      const words = Number.isNaN(at) ? time.textContent : relative(at, Date.now());
      if (time.textContent !== words) time.textContent = words;
    }
  };
  setInterval(tick, 10_000);

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
    const body = waiting === 1 ? 'A decision waits for you.' : `${waiting} decisions wait for you.`;
    // Several pages that are open say it once.
    const shown = new Notification('Lastword', { body, tag: `lastword-${waiting}` });
    shown.onclick = () => { window.focus(); shown.close(); };
  };
  document.addEventListener('htmx:after:swap', () => { tick(); retitle(); notify(); });
  document.addEventListener('htmx:finally:request', () => { retitle(); notify(); });
  retitle();

  // In a narrow window the navigation is one row, and the lit entry may be beside it.
  const nav = $('header nav');
  const lit = nav && $('[aria-current]', nav);
  if (lit) nav.scrollLeft = lit.offsetLeft + lit.offsetWidth - nav.clientWidth;

  // --- Theme.
  const toggleTheme = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    try { localStorage.setItem('lastword-theme', root.dataset.theme); } catch { /* then for this page only */ }
  };

  // --- The banner: the stream of hints ended, and comes again by itself.
  const banner = $('#banner');
  let away = null;
  const say = (text) => { if (banner) { banner.textContent = text; banner.hidden = !text; } };
  const lost = () => {
    // A moment's break is nobody's business.
    away ??= setTimeout(() => say('The server is away. Reconnecting…'), 400);
  };
  const back = () => { clearTimeout(away); away = null; say(''); };
  document.addEventListener('htmx:sse:before:connection', (event) => { if (event.detail.connection.attempt > 0) lost(); });
  document.addEventListener('htmx:sse:after:connection', back);
  document.addEventListener('htmx:sse:error', (event) => {
    if (event.detail.status === 401) say('You are signed out. What you typed is still here: sign in again in another tab.');
    else lost();
  });
  // The first connection failed, which htmx doesn't try again by itself.
  const retry = (event) => {
    if (event.target.id !== 'live' || event.target._htmx?.sse) return;
    lost();
    setTimeout(() => htmx.trigger('#live', 'lw-connect'), 2_000);
  };
  document.addEventListener('htmx:error', retry);
  document.addEventListener('htmx:response:error', retry);

  // A form that reached nobody: said where its outcome would have been, and what was typed stays.
  document.addEventListener('htmx:error', (event) => {
    const flash = $('#flash');
    if (!flash || !event.target.closest?.('form[hx-post]')) return;
    const note = document.createElement('div');
    note.className = 'flash bad';
    note.setAttribute('role', 'alert');
    const words = document.createElement('p');
    words.textContent = 'The server did not answer, so this may not have been done. What you typed is still here: send it again once the server is back.';
    note.append(words);
    flash.replaceChildren(note);
  });

  // --- Windows.
  const open = (id) => {
    const dialog = document.getElementById(id);
    if (!dialog || dialog.open) return;
    // What was asked at the last opening is out of date; a button of it that has the focus would go when the answer comes.
    if (id === 'workspace') $('#workspace-question').replaceChildren();
    dialog.showModal();
    if (id === 'palette') {
      const query = $('#palette-query');
      query.value = '';
      query.focus();
      htmx.trigger(query, 'lw-palette');
    }
    if (id === 'workspace') htmx.trigger('#workspace-question', 'lw-open');
  };
  document.addEventListener('click', (event) => {
    const opener = event.target.closest('[data-open]');
    if (opener) {
      // Some of them are links, for where no script runs.
      event.preventDefault();
      open(opener.dataset.open);
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

  // What came of it is told on the page below.
  document.addEventListener('htmx:after:swap', () => {
    if ($('#workspace')?.open && $('#flash')?.childElementCount) $('#workspace').close();
  });

  // --- Keys.
  const rows = () => $$('[data-row]', $('#main') ?? document);
  const row = () => document.activeElement?.closest?.('[data-row]');
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(row());
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
    all[next].focus();
    all[next].scrollIntoView({ block: 'nearest' });
  };
  const within = (key) => {
    const target = $(`[data-key="${key}"]`, row() ?? rows()[0] ?? document);
    if (target) target.focus();
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
    else if (key === 'a' || key === 'r') within(key);
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
      typing.form.requestSubmit($('button.main', typing.form) ?? undefined);
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
