// Before anything is painted: the theme that was chosen here, if one was.
(() => {
  try {
    const theme = localStorage.getItem('lastword-theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage the system's theme holds.
  }
})();
