import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import jsQR from 'jsqr';
import { Broker, accessible, fits, launch, menu, signedIn, watch } from './world.mjs';

const PHONE = { viewport: { width: 375, height: 760 } };
let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start();
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
