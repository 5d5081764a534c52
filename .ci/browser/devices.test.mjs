import ece from 'http_ece';
import jsQR from 'jsqr';
import assert from 'node:assert/strict';
import { createECDH, createPublicKey, randomBytes, verify } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { Broker, accessible, fits, launch, menu, signedIn, until, watch } from './world.mjs';

const PHONE = { viewport: { width: 375, height: 760 } };
let browser, broker, page;

before(async () => {
  browser = await launch();
  // The services of browsers are public; the one of these tests is not.
  broker = await Broker.start('[[notify]]\nname = "devices"\ndevices = true\nallow_private = true\nwindow = "0s"\n');
  await broker.agent('coder');
  page = await signedIn(browser, broker);
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

/** What a camera reads of the picture, which is drawn as rows of dark modules. */
const read = async (picture) => {
  const [, , side] = (await picture.getAttribute('viewBox')).split(' ').map(Number);
  const [scale, width] = [4, side * 4];
  const pixels = new Uint8ClampedArray(width * width * 4).fill(255);
  for (const [, x, y, run] of (await picture.locator('path').getAttribute('d')).matchAll(/M(\d+) (\d+)h(\d+)/g)) {
    for (let at = 0; at < run * scale; at += 1) {
      for (let line = 0; line < scale; line += 1) {
        const pixel = ((Number(y) + 4) * scale + line) * width + (Number(x) + 4) * scale + at;
        pixels.fill(0, pixel * 4, pixel * 4 + 3);
      }
    }
  }
  return jsQR(pixels, width, width).data;
};

test('a phone is signed in by the code on the desktop, with a press, once, and the desktop says so', async () => {
  await menu(page);
  await page.locator('#menu').getByRole('link', { name: 'Devices' }).click();
  await page.waitForURL(/\/devices$/);
  await page.getByRole('button', { name: 'Show a code' }).click();
  const picture = page.getByRole('img', { name: 'QR code of the link' });
  await picture.waitFor();
  await accessible(page, 'the code');
  const link = await read(picture);
  assert.ok(link.startsWith(`${broker.url}/sign-in/device#`), link);
  const phone = await (await browser.newContext(PHONE)).newPage();
  watch(phone);
  await phone.goto(link);
  const press = phone.getByRole('button', { name: 'Sign in' });
  await press.waitFor();
  assert.equal(phone.url(), `${broker.url}/sign-in/device`, 'the secret is gone from the address');
  assert.equal(await phone.getByLabel('The link').count(), 0);
  await fits(phone, 'the page of the code');
  await accessible(phone, 'the page of the code');
  await page.locator('#handed').getByText('Not used yet').waitFor();
  await press.click();
  await phone.waitForURL(`${broker.url}/`);
  await menu(phone);
  await phone.locator('#menu').getByText('operator').first().waitFor();
  await page.locator('#handed').getByText('Signed in').waitFor();
  await phone.goto(`${broker.url}/devices`);
  await fits(phone, 'devices');
  await accessible(phone, 'devices');
  const other = await (await browser.newContext(PHONE)).newPage();
  await other.goto(link);
  await other.getByRole('button', { name: 'Sign in' }).click();
  await other.getByText('was used already').waitFor();
  assert.deepEqual(phone.errors, []);
  await phone.context().close();
  await other.context().close();
});

/** A push service, with a browser that subscribed at it: it keeps what it gets, and answers with `status`. */
const service = async () => {
  const [keys, auth] = [createECDH('prime256v1'), randomBytes(16)];
  keys.generateKeys();
  const got = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    got.push({ headers: request.headers, body: Buffer.concat(parts) });
    response.writeHead(it.status).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${server.address().port}`;
  const text = (bytes) => bytes.toString('base64url');
  const it = {
    status: 201,
    got,
    server,
    origin,
    subscription: { endpoint: `${origin}/push/secret`, p256dh: text(keys.getPublicKey()), auth: text(auth) },
    read: (body) => JSON.parse(ece.decrypt(body, { version: 'aes128gcm', privateKey: keys, authSecret: text(auth) })),
  };
  return it;
};

/** What proves to a push service who sends, by the key with which the browser subscribed. */
const proven = ({ authorization }, key, origin) => {
  const [, token, sent] = /^vapid t=([\w.-]+), k=([\w-]+)$/.exec(authorization);
  assert.equal(sent, key);
  const point = Buffer.from(key, 'base64url');
  const [x, y] = [point.subarray(1, 33), point.subarray(33)].map((part) => part.toString('base64url'));
  const [head, claims, signature] = token.split('.');
  const by = { key: createPublicKey({ format: 'jwk', key: { kty: 'EC', crv: 'P-256', x, y } }), dsaEncoding: 'ieee-p1363' };
  assert.ok(verify('sha256', Buffer.from(`${head}.${claims}`), by, Buffer.from(signature, 'base64url')));
  const { aud, exp, sub } = JSON.parse(Buffer.from(claims, 'base64url'));
  assert.equal(aud, origin);
  const ahead = exp - Date.now() / 1000;
  assert.ok(ahead > 0 && ahead <= 86_400, String(exp));
  assert.match(sub, /^(mailto:|https:)/);
};

test('what the browser fails at is said in words for its human', async () => {
  await page.goto(`${broker.url}/devices`);
  await page.evaluate(() => {
    window.Notification.requestPermission = async () => 'granted';
    window.PushManager.prototype.subscribe = async () => { throw new DOMException('Registration failed - push service error', 'AbortError'); };
  });
  await page.getByRole('button', { name: 'Notify this device' }).click();
  await page.locator('#notify-device').getByText('The browser could not reach its push service').waitFor();
  assert.doesNotMatch(await page.locator('#notify-device').innerText(), /Registration/);
});

test('a device gets what waits for its human, encrypted for it alone, until its browser ends it', async () => {
  const push = await service();
  await page.goto(`${broker.url}/devices`);
  // Headless Chromium has no push service: what its subscription would be comes from here, and all else is the page's own.
  await page.evaluate(({ endpoint, p256dh, auth }) => {
    const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (letter) => letter.charCodeAt(0)).buffer;
    window.Notification.requestPermission = async () => 'granted';
    window.PushManager.prototype.subscribe = async function (options) {
      window.subscribedBy = btoa(String.fromCharCode(...options.applicationServerKey)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, '');
      return { endpoint, getKey: (name) => bytes({ p256dh, auth }[name]) };
    };
  }, push.subscription);
  await page.getByLabel('Name').fill('my phone');
  await page.getByRole('button', { name: 'Notify this device' }).click();
  const line = page.locator('#notified li', { hasText: 'my phone' });
  await line.waitFor();
  const key = await page.evaluate(() => window.subscribedBy);
  // The worker is there, for all pages, and answers for none of them.
  const worker = await page.evaluate(async () => {
    const { scope, active } = await navigator.serviceWorker.ready;
    return { scope, script: active.scriptURL, keeps: await caches.keys() };
  });
  assert.deepEqual(worker, { scope: `${broker.url}/`, script: `${broker.url}/notifier.js`, keeps: [] });
  const script = await (await fetch(worker.script)).text();
  assert.doesNotMatch(script, /fetch|caches/);
  await accessible(page, 'devices');
  await line.getByRole('button', { name: 'Send a test' }).click();
  await page.locator('#flash').getByText('A test is on its way').waitFor();
  const [test] = push.got.splice(0);
  assert.deepEqual([test.headers['content-encoding'], test.headers.urgency, test.headers.ttl], ['aes128gcm', 'normal', '86400']);
  proven(test.headers, key, push.origin);
  assert.equal(push.read(test.body).title, 'Lastword: a test');
  // What waits.
  await broker.ask('coder', 'PUSH-1', 'Deploy it');
  await broker.take('coder');
  const held = await broker.call('coder', 'POST', '/approvals', { tool: 'deploy', arguments: { secret: 'canary' } });
  await until(() => push.got.length, 1);
  const [told] = push.got.splice(0);
  assert.ok(told.body.length <= 4_096 && !told.body.includes('deploy'));
  const shown = push.read(told.body);
  assert.equal(shown.path, `approvals/${held.id}`);
  assert.match(shown.title, /1 approval waits for you/);
  assert.match(shown.body, /coder asks to call deploy, in PUSH-1/);
  assert.doesNotMatch(JSON.stringify(shown), /canary/);
  // Over a restart the device and the key are the same.
  await broker.down();
  await broker.up(new URL(broker.url).host);
  await page.goto(`${broker.url}/devices`);
  await line.getByRole('button', { name: 'Send a test' }).click();
  await until(() => push.got.length, 1);
  proven(push.got.splice(0)[0].headers, key, push.origin);
  // Its browser has ended it.
  push.status = 410;
  await line.getByRole('button', { name: 'Send a test' }).click();
  await page.locator('#flash').getByText('has ended its subscription').waitFor();
  await page.reload();
  assert.equal(await line.count(), 0);
  push.server.close();
});

test('a browser that has no notifications says so beside the button', async () => {
  await page.goto(`${broker.url}/devices`);
  await page.evaluate(() => { delete window.PushManager; });
  await page.getByRole('button', { name: 'Notify this device' }).click();
  await page.locator('#notify-device-said').getByText('add the console to the home screen first').waitFor();
});
