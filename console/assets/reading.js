// A history that is read while it grows: what is under the eye stays there, or the page follows the end.
(() => {
  'use strict';
  const $ = (selector) => document.querySelector(selector);
  const rows = () => [...document.querySelectorAll('#history [data-row][id]')];
  const follows = () => $('#follow')?.getAttribute('aria-pressed') === 'true';
  const covered = () => Math.max(0, ...['#top', '#notices'].map((bar) => $(bar)?.getBoundingClientRect().bottom ?? 0));
  const box = (element) => {
    for (let around = element.parentElement; around && around !== document.body; around = around.parentElement) {
      if (around.scrollHeight > around.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(around).overflowY)) return around;
    }
    return document.scrollingElement;
  };

  // --- The rows in the window with their places, if the history's begin is above it.
  let seen = [];
  // By how much the last restoration missed: places are rounded to pixels, and many small misses would add up.
  let missed = 0;
  const look = () => {
    seen = [];
    const history = $('#history');
    if (!history || follows()) return;
    const around = box(history);
    const top = Math.max(covered(), around === document.scrollingElement ? 0 : around.getBoundingClientRect().top);
    if (history.getBoundingClientRect().top > top) return;
    for (const row of rows()) {
      const place = row.getBoundingClientRect();
      if (place.top >= innerHeight) return;
      if (place.bottom > top) seen.push({ id: row.id, top: place.top - missed });
    }
  };
  const restore = () => {
    for (const { id, top } of seen) {
      const row = document.getElementById(id);
      if (!row) continue;
      box(row).scrollTop += row.getBoundingClientRect().top - top;
      missed = row.getBoundingClientRect().top - top;
      // It is no rounding where the page can't scroll as far.
      if (Math.abs(missed) > 1) missed = 0;
      return;
    }
  };

  // --- The newest row: what the end is in every view that has rows.
  const number = ({ id }) => Number(/\d+$/.exec(id)?.[0] ?? 0);
  const newest = () => rows().reduce((best, row) => (best && number(best) >= number(row) ? best : row), null);
  const isInWindow = (row) => {
    const { top, bottom } = row.getBoundingClientRect();
    return bottom <= innerHeight + 2 && top >= 0;
  };
  // Where following has scrolled to; who scrolls up from there reads.
  let end = null;
  // The address that following began or ended with.
  let wanted = null;
  const toEnd = () => {
    for (const pane of document.querySelectorAll('#history .waterfall')) pane.scrollTop = pane.scrollHeight;
    const row = newest() ?? $('#history')?.lastElementChild;
    if (!row) return;
    row.scrollIntoView({ block: 'end' });
    const around = box(row);
    end = { around, top: around.scrollTop };
  };
  const turn = () => {
    const link = $('#follow');
    const url = link?.getAttribute('href');
    if (!url) return;
    end = null;
    wanted = url;
    htmx.ajax('GET', url, { target: '#main', swap: 'outerMorph' }).then(() => history.replaceState(null, '', url));
  };
  addEventListener('scroll', () => {
    if (!end || !follows() || !end.around.isConnected) return;
    if (end.around.scrollTop < end.top - 8) turn();
  }, { capture: true, passive: true });

  // --- How much is newer than what was there when the end was in the window last.
  const note = document.createElement('button');
  note.id = 'grown';
  note.type = 'button';
  note.hidden = true;
  document.body.append(note);
  note.addEventListener('click', turn);
  let known = null;
  const count = () => {
    const history = $('#history');
    if (!history) return;
    const [total, left] = [Number(history.dataset.total), Number(history.dataset.left)];
    const last = left === 0 && newest();
    if (known === null || follows() || (last && isInWindow(last))) known = total;
    note.textContent = `${total - known} newer`;
    note.hidden = total <= known;
  };
  addEventListener('scroll', count, { capture: true, passive: true });

  document.addEventListener('click', (event) => {
    const elsewhere = event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    if (elsewhere || !event.target.closest?.('#follow')) return;
    event.preventDefault();
    turn();
  });
  const arrive = () => {
    if (follows()) toEnd();
    count();
  };
  // A reload that was on its way while following began or ended would undo that.
  const isFollowed = (url) => url.includes('follow=true');
  document.addEventListener('htmx:before:swap', (event) => {
    const { sourceElement, request } = event.detail.ctx;
    if (wanted && sourceElement.id === 'main' && isFollowed(request.action) !== isFollowed(wanted)) event.preventDefault();
    else look();
  });
  document.addEventListener('htmx:after:swap', () => { restore(); arrive(); });
  arrive();
})();
