// A broker of one's own with its agents, and a browser in which its human has signed in.
import axe from 'axe-core';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const SHELL = '/usr/bin/chromium-headless-shell';
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

/** A broker: its data stays over restarts, and so does its port. */
export class Broker {
  /** With this configuration, where there is one, at this address, or at a port that is free. */
  static async start(config, listen = '127.0.0.1:0') {
    const broker = new Broker();
    broker.data = await mkdtemp(join(tmpdir(), 'lastword-browser-'));
    broker.tokens = {};
    if (config) {
      broker.config = join(broker.data, 'lastword.toml');
      await writeFile(broker.config, config);
    }
    await broker.up(listen);
    broker.tokens.operator = (await readFile(join(broker.data, 'operator.token'), 'utf8')).trim();
    return broker;
  }

  async up(listen) {
    const config = this.config ? ['--config', this.config] : [];
    this.process = spawn(process.env.LASTWORD, [...config, '--data', this.data, 'serve', '--listen', listen], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    for await (const chunk of this.process.stdout) {
      text += chunk;
      if (text.includes('signs in once')) break;
    }
    if (!text.includes('signs in once')) throw new Error('the server did not start');
    this.url = /listening on (\S+)/.exec(text)[1];
    this.link = /console: (\S+)/.exec(text)[1];
  }

  async down() {
    const ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.kill('SIGTERM');
    await ended;
  }

  async end() {
    await this.down();
    await rm(this.data, { recursive: true });
  }

  /** A call of /v1; anything but success is an error. */
  async call(who, method, path, body) {
    const response = await fetch(`${this.url}/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.tokens[who]}`, 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw Object.assign(new Error(`${method} ${path}: ${response.status} ${text}`), { status: response.status });
    return text ? JSON.parse(text) : null;
  }

  async agent(name, more = {}) {
    this.tokens[name] = (await this.call('operator', 'POST', '/agents', { name, ...more })).token;
  }

  ask(to, ref, body) {
    return this.call('operator', 'POST', '/messages', { type: 'request', to, ref, body });
  }

  take(who) {
    return this.call(who, 'GET', '/inbox?wait=20s');
  }
}

/** What `lastword demo --keep` leaves: its address, its human's token, and how it ends. */
export const demo = async () => {
  const child = spawn(process.env.LASTWORD ?? '../debug/lastword', ['demo', '--keep', '--json'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let told = '';
  for await (const chunk of child.stdout) {
    told += chunk;
    if (/"listening"[^}]*\}\s*$/.test(told)) break;
  }
  const url = /"listening":\s*"([^"]+)"/.exec(told)[1];
  const operator = (await readFile(/"operator_token_file":\s*"([^"]+)"/.exec(told)[1], 'utf8')).trim();
  const end = async () => {
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGINT');
    await ended;
  };
  return { url, operator, end };
};

export const launch = () => chromium.launch({ executablePath: SHELL, args: FLAGS });

/** A browser that another program can drive, too, over this port. */
export const launchOn = (port) => chromium.launchPersistentContext('', { executablePath: SHELL, args: [...FLAGS, `--remote-debugging-port=${port}`] });

/** A page in which a human has signed in. Its errors are kept in `page.errors`. */
export async function signedIn(browser, broker, options = {}, who = 'operator') {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const page = await context.newPage();
  watch(page);
  unhurried(page);
  await page.goto(`${broker.url}/sign-in`);
  await page.getByLabel('Your token').fill(broker.tokens[who]);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(`${broker.url}/`);
  return page;
}

/** Waits until the button that has the focus decides, as a person who reads does. */
export const steadied = (page) => until(() => page.evaluate(() => {
  const button = document.activeElement;
  return steady.isLive(button) && steady.unseen(button.closest('.card')).length === 0;
}), true);

/** Lets tests press the buttons of a card as a person does: once they have stood there, and with a way off afterwards. */
function unhurried(page) {
  const locators = Object.getPrototypeOf(page.locator('body'));
  if (locators.unhurried) return;
  locators.unhurried = true;
  for (const name of ['click', 'dblclick']) {
    const press = locators[name];
    locators[name] = async function (options) { await unhurriedly(this, name, press, options); };
  }
}

async function unhurriedly(locator, press, instead, options) {
  const where = await locator.evaluate(async (element) => {
    if (!element.closest('.card') || typeof steady === 'undefined') return 'elsewhere';
    const button = element.closest('.card form[hx-post] button[type=submit]');
    if (!button) return 'on a card';
    button.scrollIntoView({ block: 'center' });
    const stands = () => steady.isLive(button) && !steady.ripens(button.closest('.card'));
    for (let n = 0; n < 500 && button.isConnected && !button.disabled && !stands(); n += 1) {
      await new Promise((done) => setTimeout(done, 20));
    }
    return button.isConnected ? 'on its button' : 'elsewhere';
  }, undefined, options);
  const { mouse } = locator.page();
  const box = where === 'on its button' && await locator.boundingBox();
  // The library would scroll once more, and what moved decides nothing.
  if (box) await mouse[press](box.x + box.width / 2, box.y + box.height / 2);
  else await instead.call(locator, options);
  if (where !== 'elsewhere') await mouse.move(0, 0);
}

/** Keeps what the page's scripts fail at, a breach of the policy of contents included. */
export function watch(page) {
  page.errors = [];
  page.on('pageerror', (error) => page.errors.push(String(error)));
  page.on('console', (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) page.errors.push(message.text());
  });
  page.on('dialog', (dialog) => dialog.accept());
}

/** Waits for the stream of hints: what happens from now on is heard of. */
/** Opens the menu: who is signed in, the pages that are no room, and what is set in this browser. */
export const menu = (page) => page.locator('[popovertarget=menu]').click();
export const connected = (page) => page.locator('#live[data-state=live]').waitFor({ state: 'attached' });

/** Nothing serious that axe finds. A dark page has the elements of the light one, so only its colours are looked at. */
export async function accessible(page, where) {
  await page.evaluate(axe.source);
  const violations = await page.evaluate(async () => {
    const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
    const only = isDark ? { runOnly: ['color-contrast', 'link-in-text-block'] } : {};
    return (await window.axe.run({ resultTypes: ['violations'], ...only })).violations;
  });
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join('\n  ')}`);
  assert.deepEqual(told, [], where);
}

/** The page is no wider than the window. */
export async function fits(page, where) {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= window, `${where} is ${content} wide in a window of ${window}`);
}

/** Waits until what `look` gives is `wanted`. */
export async function until(look, wanted) {
  const end = Date.now() + 15_000;
  let seen;
  while (Date.now() < end) {
    seen = await look();
    if (seen === wanted) return;
    // Polling without a break would take the processor from the pages.
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.equal(seen, wanted);
}
