// What a click decides is what was on the screen. A button that the page moved or inserted does nothing for a second, and says
// so when it is pressed; one that stood there when the page came, or moved by its reader's scrolling, works at once. Nothing is
// inserted or moved under the pointer or a focused button, and a call is approved once its end was seen.
const steady = (() => {
  'use strict';
  const DEAD = 1_000;
  const LOOK = 100;
  // The second press of a double click comes within this, also where the first one led to another page.
  const DOUBLE = 500;
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
  // Where it stands in the page, whatever is scrolled: that of its bar and its card where the bar sticks to the window.
  const layout = (button) => {
    const [own, bar] = [button.getBoundingClientRect(), button.closest('.cards > .card > .decide')];
    let [left, down] = [scrollX, scrollY];
    for (let around = button.parentElement; around && around !== document.body; around = around.parentElement) {
      left += around.scrollLeft;
      down += around.scrollTop;
    }
    if (!bar) return [own.x + left, own.y + down];
    const [card, stuck] = [bar.parentElement.getBoundingClientRect(), bar.getBoundingClientRect()];
    return [own.x + left, own.y - stuck.y, card.top + down, card.bottom + down];
  };
  let first = true;
  const place = (button) => {
    const { x, y, width, height } = button.getBoundingClientRect();
    const what = decides(button);
    const before = places.get(what);
    const stands = { x, y, width, height, layout: layout(button) };
    const near = (one, other) => Math.abs(one - other) < STILL;
    const isSame = before && width > 0 && near(width, before.width) && near(height, before.height);
    const still = isSame && ((near(x, before.x) && near(y, before.y)) || stands.layout.every((at, n) => near(at, before.layout[n])));
    // What the page came with, nobody saw elsewhere.
    const since = still ? before.since : first ? -Infinity : now();
    places.set(what, { ...stands, since });
    return places.get(what);
  };

  // --- Which texts of a call had their begin and their end in the window, under which digest.
  const texts = new Map();
  // Beside a list, what was said lies over the end of that list and over no card.
  const bars = () => all('#top, #notices, #flash').map((bar) => bar.getBoundingClientRect());
  const top = () => Math.max(0, ...bars().filter((bar) => bar.top < innerHeight / 2).map((bar) => bar.bottom));
  const digest = (card) => card.querySelector('[name=digest]')?.value;
  // The card's head and its buttons stay in the window, over the text.
  const part = (card, name) => card.querySelector(`:scope > ${name}`)?.getBoundingClientRect();
  // What says why a press did nothing lies over the text of its card.
  const why = document.createElement('p');
  let pressed = null;
  const foot = (card) => Math.min(innerHeight, part(card, '.decide')?.top ?? innerHeight, why.hidden || pressed !== card ? innerHeight : why.getBoundingClientRect().top);
  const see = (text, at, card) => {
    const { top: begin, bottom: end, height } = text.getBoundingClientRect();
    const head = part(card, 'header')?.bottom ?? 0;
    const key = [card.id, digest(card), at].join(' ');
    const known = texts.get(key) ?? { begin: false, end: false, since: Infinity };
    const shows = (y) => height > 0 && y >= Math.max(top(), head) - STILL && y <= foot(card) + STILL;
    known.begin ||= shows(begin);
    known.end ||= shows(end);
    if (known.begin && known.end) known.since = Math.min(known.since, now());
    texts.set(key, known);
    return known;
  };
  const unseen = (card) => all('.call pre', card).filter((text, at) => !(now() - see(text, at, card).since >= DEAD));

  // Whether it came into view a moment ago: it will be seen without another press.
  const ripens = (card) => all('.call pre', card).some((text, at) => { const { since } = see(text, at, card); return since < Infinity && now() - since < DEAD; });

  const isLive = (button) => !button.disabled && now() - place(button).since >= DEAD;
  const look = () => {
    if (document.visibilityState !== 'visible') return;
    // A button that left the page stands anew when it comes back.
    const here = new Set(all(BUTTONS).map(decides));
    for (const what of places.keys()) if (!here.has(what)) places.delete(what);
    for (const card of all('.card')) all('.call pre', card).forEach((text, at) => see(text, at, card));
    for (const button of all(BUTTONS)) {
      const live = isLive(button) && !(button.matches('[data-approve]') && ripens(button.closest('.card')));
      if (live) button.removeAttribute('aria-disabled');
      else button.setAttribute('aria-disabled', 'true');
    }
    first = false;
  };
  setInterval(look, LOOK);
  for (const change of ['scroll', 'resize']) addEventListener(change, look, { capture: true, passive: true });
  // What moved while nobody saw it is found when the page is seen again.
  document.addEventListener('visibilitychange', look);
  document.addEventListener('htmx:after:swap', look);
  look();

  // --- A press that does nothing says why, beside the button.
  why.id = 'refused-press';
  why.setAttribute('role', 'alert');
  why.hidden = true;
  document.body.append(why);
  let told = null;
  const say = (words, button) => {
    why.textContent = words;
    why.hidden = false;
    pressed = button.closest('.card');
    const { left, top: above, bottom: below } = button.getBoundingClientRect();
    why.style.left = `${Math.max(8, Math.min(left, innerWidth - why.offsetWidth - 8))}px`;
    why.style.top = `${above > why.offsetHeight + 12 + top() ? above - why.offsetHeight - 8 : below + 8}px`;
    clearTimeout(told);
    told = setTimeout(() => { why.hidden = true; }, 6_000);
  };
  // When a press led to this page: the second one of a double click would fall on what it shows.
  const PRESSED = 'lastword-pressed';
  let before = null;
  try { before = JSON.parse(sessionStorage.getItem(PRESSED)); } catch { /* without storage nothing is known of the page before */ }
  document.addEventListener('pointerdown', ({ clientX, clientY }) => {
    why.hidden = true;
    try { sessionStorage.setItem(PRESSED, JSON.stringify([Date.now(), clientX, clientY])); } catch { /* the next page takes every press */ }
  }, true);
  // Who did something else meanwhile presses anew.
  for (const act of ['keydown', 'input']) document.addEventListener(act, () => { before = null; }, { capture: true, once: true });
  const isSecond = ({ clientX, clientY }) => {
    const [at, x, y] = before ?? [0];
    return Date.now() - at < DOUBLE && Math.hypot(clientX - x, clientY - y) < 16;
  };

  // Returns the first text of the call that was not seen; the console unfolds it.
  const rest = (card) => all('.call pre', card).map((text, at) => ({ text, ...see(text, at, card) })).find(({ begin, end }) => !begin || !end);
  const read = (card, next) => {
    const { top: begin, bottom: end } = next.text.getBoundingClientRect();
    scrollBy(0, next.begin ? end - foot(card) : begin - top() - (part(card, 'header')?.height ?? 0));
  };
  // How much of the end of a call lies below what says why a press did nothing.
  const covered = (card) => {
    const [above, bar] = [why.getBoundingClientRect().top, part(card, '.decide')?.top ?? innerHeight];
    const ends = all('.call pre', card).map((text) => text.getBoundingClientRect().bottom).filter((end) => end <= bar + STILL);
    return Math.max(0, ...ends.map((end) => end - above));
  };
  // Where the buttons stand right below the call, the words stand below them, once the page is scrolled so far.
  const clear = (card, button) => {
    if (!covered(card)) return;
    const below = () => button.getBoundingClientRect().bottom + 8;
    scrollBy(0, Math.max(0, below() + why.offsetHeight + 8 - innerHeight));
    if (below() + why.offsetHeight > innerHeight) say(why.textContent, button);
    else why.style.top = `${below()}px`;
  };
  let unfold = () => false;
  document.addEventListener('click', (event) => {
    const button = event.target.closest?.(BUTTONS);
    if (!button) return;
    const card = button.closest('.card');
    const stop = () => { event.preventDefault(); event.stopPropagation(); };
    // Enter in a field of the form is for that form, wherever its button stands.
    const field = event.detail === 0 && document.activeElement !== button && document.activeElement?.form === button.form;
    if (!field && isSecond(event)) { say('This page came as you pressed. Press again.', button); return stop(); }
    if (!field && !isLive(button)) {
      if (!button.disabled) say('This moved as you pressed. Press again.', button);
      return stop();
    }
    if (!button.matches('[data-approve]')) return;
    if (unfold(card)) return stop();
    if (unseen(card).length) {
      const next = rest(card);
      const words = `${next ? 'Not all of the call was in the window: here is the rest.' : 'The call came into view a moment ago.'} Read it, then press again.`;
      say(words, button);
      // Above what says so, which moves with its button.
      if (next) { read(card, next); say(words, button); }
      clear(card, button);
      return stop();
    }
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
    document.querySelector(`.index [href="#${CSS.escape(card.id)}"]`)?.classList.add('settled');
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
    const [heading, now] = [document, page].map((of) => of.querySelector('#main > .heading'));
    if (heading && now) heading.replaceChildren(...now.childNodes);
    const more = fresh.filter((id) => !shown.includes(id));
    const last = Math.max(...shown.map((id) => fresh.indexOf(id)));
    const sooner = more.filter((id) => fresh.indexOf(id) < last).length;
    note.textContent = `${more.length} new${sooner ? `, ${sooner === more.length ? '' : `${sooner} of them `}expires sooner` : ''}: show`;
    note.hidden = more.length === 0;
    release();
  };
  return { engaged, hold, isLive, ripens, unseen, onApprove: (way) => { unfold = way; } };
})();
