// Shows what the broker notifies of, and opens the page of it. It serves no pages and keeps nothing.
'use strict';
addEventListener('push', (event) => {
  const { title, body, path, tag } = event.data.json();
  event.waitUntil(registration.showNotification(title, { body, tag, data: path }));
});
addEventListener('notificationclick', (event) => {
  event.notification.close();
  const { href } = new URL(event.notification.data, registration.scope);
  event.waitUntil((async () => {
    const pages = await clients.matchAll({ type: 'window', includeUncontrolled: true });
    const open = pages.find(({ url }) => url === href);
    await (open ? open.focus() : clients.openWindow(href));
  })());
});
