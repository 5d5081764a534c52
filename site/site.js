'use strict';
// The versions that lie beside this one. Without their list there is no choice.
(async () => {
  const root = new URL(path_to_root || '.', location.href);
  const response = await fetch(new URL('../versions.json', root)).catch(() => ({ ok: false }));
  if (!response.ok) return;
  const select = Object.assign(document.createElement('select'), { id: 'version', ariaLabel: 'Version' });
  const here = root.pathname.split('/').at(-2);
  for (const version of await response.json()) select.add(new Option(version, version, false, version === here));
  select.addEventListener('change', () => { location.href = new URL(`../${select.value}/index.html`, root); });
  document.querySelector('.right-buttons').prepend(select);
})();
// What mdBook leaves out for those without a mouse: a landmark, a button, and scrolling by keys.
{
  document.getElementById('mdbook-menu-bar').role = 'banner';
  const label = document.getElementById('mdbook-sidebar-toggle');
  const sidebar = document.getElementById('mdbook-sidebar-toggle-anchor');
  const { title, innerHTML } = label;
  const toggle = document.createElement('button');
  Object.assign(toggle, { type: 'button', className: 'icon-button', title, ariaLabel: title, innerHTML });
  const tell = () => { toggle.ariaExpanded = sidebar.checked; };
  toggle.addEventListener('click', () => sidebar.click());
  sidebar.addEventListener('change', tell);
  tell();
  label.before(toggle);
  label.style.display = 'none';
  for (const fold of document.querySelectorAll('.chapter-fold-toggle')) {
    Object.assign(fold, { role: 'button', ariaLabel: `Pages below ${fold.previousSibling.textContent}` });
    fold.addEventListener('keydown', (event) => { if (event.key === 'Enter') fold.click(); });
  }
  const scrollable = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute('tabindex');
    }
  });
  for (const box of document.querySelectorAll('pre > code, .table-wrapper')) scrollable.observe(box);
}
