// What a click decides is what was on the screen. A button that appeared or moved does nothing for a second, nothing is
// inserted or moved under the pointer or a focused button, and a call is approved once its end was seen.
const steady = (() => {
  'use strict';
  const DEAD = 1_000;
  const LOOK = 100;
  // A layout may differ by parts of a pixel.
  const STILL = 2;
  const BUTTONS = '.card form[hx-post] button[type=submit]';
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const now = () => performance.now();

  // --- Where each button was, and since when it has stood there and decided the same.
  // A reload may put another element in its place: what it decides tells it apart.
  const places = new Map();
  const decides = (button) => {
    const form = button.form;
    return [form.getAttribute('id'), form.getAttribute('action'), form.elements.digest?.value, button.name, button.value].join(' ');
  };
  const place = (button) => {
    const { x, y, width, height } = button.getBoundingClientRect();
    const what = decides(button);
    const before = places.get(what);
    const still = before && width > 0
      && [x - before.x, y - before.y, width - before.width, height - before.height].every((by) => Math.abs(by) < STILL);
    if (!still) places.set(what, { x, y, width, height, since: now() });
    return places.get(what);
  };

  // --- Which texts of a call had their begin and their end in the window, under which digest.
  const texts = new Map();
  const top = () => Math.max(0, ...all('#top, #notices, #flash').map((bar) => bar.getBoundingClientRect().bottom));
  const digest = (card) => card.querySelector('[name=digest]')?.value;
  // The card's head and its buttons stay in the window, over the text.
  const part = (card, name) => card.querySelector(`:scope > ${name}`)?.getBoundingClientRect();
  const see = (text, at, card) => {
    const { top: begin, bottom: end, height } = text.getBoundingClientRect();
    const [head, foot] = [part(card, 'header')?.bottom ?? 0, part(card, '.decide')?.top ?? innerHeight];
    const key = [card.id, digest(card), at].join(' ');
    const known = texts.get(key) ?? { begin: false, end: false, since: Infinity };
    const shows = (y) => height > 0 && y >= Math.max(top(), head) - STILL && y <= Math.min(innerHeight, foot) + STILL;
    known.begin ||= shows(begin);
    known.end ||= shows(end);
    if (known.begin && known.end) known.since = Math.min(known.since, now());
    texts.set(key, known);
    return known;
  };
  const unseen = (card) => all('.call pre', card).filter((text, at) => !(now() - see(text, at, card).since >= DEAD));

  const isLive = (button) => !button.disabled && now() - place(button).since >= DEAD;
  const look = () => {
    if (document.visibilityState !== 'visible') return;
    // A button that left the page stands anew when it comes back.
    const here = new Set(all(BUTTONS).map(decides));
    for (const what of places.keys()) if (!here.has(what)) places.delete(what);
    for (const card of all('.card')) all('.call pre', card).forEach((text, at) => see(text, at, card));
    for (const button of all(BUTTONS)) {
      const live = isLive(button);
      if (live) button.removeAttribute('aria-disabled');
      else button.setAttribute('aria-disabled', 'true');
    }
  };
  setInterval(look, LOOK);
  for (const change of ['scroll', 'resize']) addEventListener(change, look, { capture: true, passive: true });
  document.addEventListener('visibilitychange', () => places.clear());
  document.addEventListener('htmx:after:swap', look);
  look();

  // Goes to the first text of the call that was not seen; the console unfolds it.
  const read = (card) => {
    const parts = all('.call pre', card).map((text, at) => ({ text, ...see(text, at, card) }));
    const next = parts.find(({ begin, end }) => !begin || !end);
    if (!next) return;
    const { top: begin, bottom: end } = next.text.getBoundingClientRect();
    const [head, foot] = [part(card, 'header')?.height ?? 0, part(card, '.decide')?.height ?? 0];
    scrollBy(0, next.begin ? end - innerHeight + foot : begin - top() - head);
  };
  let unfold = () => false;
  document.addEventListener('click', (event) => {
    const button = event.target.closest?.(BUTTONS);
    if (!button) return;
    const card = button.closest('.card');
    const stop = () => { event.preventDefault(); event.stopPropagation(); };
    // Enter in a field of the form is for that form, wherever its button stands.
    const field = event.detail === 0 && document.activeElement !== button && document.activeElement?.form === button.form;
    if (!field && !isLive(button)) return stop();
    if (!button.matches('[data-approve]')) return;
    if (unfold(card)) return stop();
    if (unseen(card).length) { read(card); return stop(); }
    // Only what was seen whole is said to be.
    button.form.elements.unseen.value = '0';
  }, true);

  // --- While the pointer rests on a card, or a button of one has the focus, the page stays as it is.
  let over = null;
  let waits = null;
  const focused = () => document.activeElement?.closest('.card') && document.activeElement.matches('button, a, summary');
  const engaged = () => Boolean(document.querySelector('.panes') && (over?.isConnected || focused()));
  const note = document.createElement('button');
  note.id = 'newer';
  note.type = 'button';
  note.hidden = true;
  document.body.append(note);
  const apply = () => {
    const part = waits;
    waits = null;
    note.hidden = true;
    if (part?.isConnected) htmx.trigger(part, 'lw-changed');
  };
  note.addEventListener('click', () => { over = null; document.activeElement?.blur(); apply(); });
  const release = () => { if (waits && !engaged()) apply(); };
  document.addEventListener('pointerover', ({ target, pointerType }) => {
    // The note lies over the cards.
    if (target === note && over) return;
    over = pointerType === 'mouse' ? target.closest?.('.cards') ?? null : null;
    release();
  });
  document.addEventListener('pointerout', ({ relatedTarget }) => { if (!relatedTarget) { over = null; release(); } });
  document.addEventListener('focusout', () => setTimeout(release));

  const ids = (within) => all('.cards > .card[id]', within).map(({ id }) => id);
  const settle = (card) => {
    card.classList.add('settled');
    for (const control of all('button, input, textarea, select', card)) control.disabled = true;
  };
  // Says what a reload would change, and shows in place what is settled. `decided` is the card of the human's own decision.
  const hold = async (part, decided) => {
    waits = part;
    const response = await fetch(part.getAttribute('hx-get'), { headers: { 'HX-Request': 'true' } }).catch(() => null);
    if (!response?.ok || waits !== part) return;
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    const [shown, fresh] = [ids(document), ids(page)];
    const gone = shown.filter((id) => !fresh.includes(id));
    // By keys, the next card takes the place of the decided one; its button is dead for a second.
    if (!over?.isConnected && gone.includes(decided?.())) return apply();
    for (const id of gone) settle(document.getElementById(id));
    const more = fresh.filter((id) => !shown.includes(id));
    const last = Math.max(...shown.map((id) => fresh.indexOf(id)));
    const sooner = more.filter((id) => fresh.indexOf(id) < last).length;
    note.textContent = `${more.length} new${sooner ? `, ${sooner === more.length ? '' : `${sooner} of them `}expires sooner` : ''}: show`;
    note.hidden = more.length === 0;
    release();
  };
  return { engaged, hold, isLive, unseen, onApprove: (way) => { unfold = way; } };
})();
