// The built site in a real browser: light and dark, wide and narrow.
import axe from 'axe-core';
import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { serve } from './serve.mjs';
import { launch, watch } from './world.mjs';

const PAGES = ['index.html', 'docs/guide.html', 'docs/limits.html', 'docs/openapi.html', 'docs/asyncapi.html'];
// The menu of redoc is no landmark, and it leaves out levels of headings.
const OF_REDOC = ['region', 'heading-order'];
const COLOURS = ['color-contrast', 'link-in-text-block'];

let browser, site, root;

before(async () => {
  site = await serve('public');
  root = `${site.url}/${JSON.parse(await readFile('public/versions.json', 'utf8'))[0]}`;
  browser = await launch();
});

after(async () => {
  await browser.close();
  site.end();
});

async function opened(path, colorScheme, width = 1280) {
  const page = await browser.newPage({ colorScheme, viewport: { width, height: 800 } });
  page.setDefaultTimeout(10_000);
  watch(page);
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(`${site.url}/`) && !url.startsWith('data:')) page.errors.push(`asks for ${url}`);
  });
  page.on('requestfailed', (request) => page.errors.push(`${request.url()}: ${request.failure().errorText}`));
  page.on('response', (response) => response.ok() || page.errors.push(`${response.url()}: ${response.status()}`));
  await page.goto(`${root}/${path}`);
  await page.locator('#version, redoc h1').waitFor({ state: 'attached' });
  return page;
}

async function violations(page, path, isDark) {
  await page.evaluate(axe.source);
  const found = await page.evaluate(async (options) => (await window.axe.run(options)).violations, {
    resultTypes: ['violations'],
    // A dark page has the elements of the light one.
    ...(isDark && { runOnly: COLOURS }),
    ...(/api\.html/.test(path) && !isDark && { rules: Object.fromEntries(OF_REDOC.map((rule) => [rule, { enabled: false }])) }),
  });
  return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join('\n  ')}`);
}

/** Whether the page is dark, and what of it is wider than the window. */
function look() {
  const parts = [document.documentElement, document.body, ...document.querySelectorAll('#mdbook-content, main')];
  return {
    isDark: parts.slice(0, 2).some((part) => /rgb\(\d\d?, /.test(getComputedStyle(part).backgroundColor)),
    wider: parts.filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.tagName),
  };
}

for (const colorScheme of ['light', 'dark']) {
  for (const path of PAGES) {
    test(`${path} is accessible, ${colorScheme}, wide and narrow, and asks no other host`, async () => {
      for (const width of [1280, 375]) {
        const page = await opened(path, colorScheme, width);
        assert.deepEqual(await page.evaluate(look), { isDark: colorScheme === 'dark', wider: [] }, `at ${width}`);
        assert.deepEqual(await violations(page, path, colorScheme === 'dark'), [], `at ${width}`);
        assert.deepEqual(page.errors, []);
        await page.close();
      }
    });
  }
}

test('the search finds a page', async () => {
  const page = await opened('index.html', 'light');
  await page.keyboard.press('s');
  await page.locator('#mdbook-searchbar').pressSequentially('deadline');
  await page.locator('#mdbook-searchresults a[href*="docs/"]').first().waitFor();
  assert.deepEqual(page.errors, []);
  await page.close();
});

test('a version is chosen, and the address of the site is the newest', async () => {
  const page = await opened('docs/guide.html', 'light');
  const versions = await page.locator('#version option').allTextContents();
  assert.deepEqual(versions.toSorted(), (await readdir('public')).filter((name) => /^v\d/.test(name)).toSorted());
  assert.equal(await page.locator('#version').inputValue(), root.split('/').at(-1));
  await page.goto(`${site.url}/index.html`);
  await page.waitForURL(`${root}/index.html`);
  await page.close();
});
